// What the resolver asks of a place that keeps ordered byte strings: frozen views and atomic
// writes, no transactions. `mem` and `rocksdb` are two of them. Views may be read by any threads at
// once; write() is called by one at a time, sync() by one at a time beside it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace starlane::kv::occ {

/// Everything written before it was made, and nothing later.
class View {
 public:
  virtual ~View() = default;
  virtual Result<std::optional<std::string>> get(std::string_view key) const = 0;
  /// In the order of `keys`.
  virtual Result<std::vector<std::optional<std::string>>> get_many(
      const std::vector<std::string_view>& keys) const = 0;
  /// Rows of [first, last) upwards, until `visit` says false.
  virtual Status scan(
      std::string_view first, std::string_view last,
      const std::function<bool(std::string_view key, std::string_view value)>& visit) const = 0;
};

/// One put (with a value) or delete (without). Later ones win.
struct Change {
  std::string_view key;
  std::optional<std::string_view> value;
};

class Storage {
 public:
  virtual ~Storage() = default;
  virtual Result<std::shared_ptr<const View>> view() = 0;
  /// All or nothing; after ok it survives the death of the process. After an error the resolver
  /// writes no more.
  virtual Status write(const std::vector<Change>& changes) = 0;
  /// Every write() that returned before the call survives power loss.
  virtual Status sync() = 0;
  /// Asked before a write is accepted: no_space while too little is left. `frees`: the change
  /// deletes rows, and may use what is held back for that.
  virtual Status room(bool frees) = 0;
  virtual std::uint64_t bytes_on_device() const = 0;
};

}  // namespace starlane::kv::occ
