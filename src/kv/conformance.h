// One suite for every engine: what engine.h promises, as tests with names. An engine's own test
// instantiates it:
//   INSTANTIATE_TEST_SUITE_P(Mem, EngineConformance, ::testing::Values(SubjectKind{…}),
//   name_of_kind);
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "kv/engine.h"

namespace starlane::kv {

/// An engine under test, with its data.
class Subject {
 public:
  virtual ~Subject() = default;
  /// Another object after restart() and lose_power().
  virtual Engine& engine() = 0;
  /// Ends the engine without a flush, and opens the same data. No transaction is left.
  virtual void restart() = 0;
  /// As restart, and takes back what was not durable, as far as it can be staged. False: it cannot.
  virtual bool lose_power() { return false; }
  /// The next commit happens, and its caller is told `unavailable`. False: cannot be staged.
  virtual bool lose_next_answer() { return false; }
};

struct SubjectKind {
  std::string name;
  /// With no rows in it.
  std::function<std::unique_ptr<Subject>()> make;
  /// For EngineKill, where another process works on the engine: opens it at a place, a path or an
  /// address.
  std::function<Result<std::unique_ptr<Engine>>(const std::string& place)> open = nullptr;
  /// A new place, empty, and the way to get rid of it.
  std::function<std::string()> new_place = nullptr;
  std::function<void(const std::string& place)> remove = nullptr;
};

inline std::string name_of_kind(const ::testing::TestParamInfo<SubjectKind>& info) {
  return info.param.name;
}
inline void PrintTo(const SubjectKind& kind, std::ostream* out) { *out << kind.name; }

class EngineConformance : public ::testing::TestWithParam<SubjectKind> {
 protected:
  EngineConformance() : subject_(GetParam().make()) {}
  Engine& engine() { return subject_->engine(); }

  /// One transaction with nothing but these.
  Status put(const std::string& key, const std::string& value,
             Durability durability = Durability::ordered);
  Status del(const std::string& key);
  /// In a fresh transaction.
  std::optional<std::string> value(const std::string& key);
  Version version(const std::string& key);
  std::int64_t total(const std::string& key);

  std::unique_ptr<Subject> subject_;
};

/// Needs `open`, `new_place` and `remove`.
class EngineKill : public ::testing::TestWithParam<SubjectKind> {};

}  // namespace starlane::kv
