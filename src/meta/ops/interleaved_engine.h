// For tests: an engine between an operation and the real one, which runs something of the test's
// just before a commit: races without threads and luck. One thread.
#pragma once
#include <functional>
#include <memory>
#include <utility>

#include "kv/engine.h"

namespace starlane::meta {

class InterleavedEngine final : public kv::Engine {
 public:
  explicit InterleavedEngine(kv::Engine& real) : real_(real) {}

  /// Runs before the next commit of anyone, once.
  void before_next_commit(std::function<void()> what) { what_ = std::move(what); }
  bool happened() const { return !what_; }

  std::unique_ptr<kv::Transaction> begin() override;
  Status flush() override { return real_.flush(); }
  void set_before_flush(std::function<Status()> hook) override {
    real_.set_before_flush(std::move(hook));
  }
  Description describe() override { return real_.describe(); }

 private:
  friend class InterleavedTransaction;
  kv::Engine& real_;
  std::function<void()> what_;
};

class InterleavedTransaction final : public kv::Transaction {
 public:
  explicit InterleavedTransaction(InterleavedEngine& engine)
      : engine_(engine), t_(engine.real_.begin()) {}

  Result<std::optional<kv::Row>> get(std::string_view key) override { return t_->get(key); }
  Result<std::vector<std::optional<kv::Row>>> get_many(
      const std::vector<std::string>& keys) override {
    return t_->get_many(keys);
  }
  Result<std::vector<kv::Row>> scan(const kv::ScanOptions& options) override {
    return t_->scan(options);
  }
  Result<std::int64_t> total(std::string_view key) override { return t_->total(key); }
  Result<std::vector<std::int64_t>> totals(const std::vector<std::string>& keys) override {
    return t_->totals(keys);
  }
  void expect(std::string_view key, kv::Version version) override { t_->expect(key, version); }
  void guard(std::string_view key) override { t_->guard(key); }
  void expect_empty(std::string_view first, std::string_view last) override {
    t_->expect_empty(first, last);
  }
  void put(std::string_view key, std::string_view value) override { t_->put(key, value); }
  void del(std::string_view key) override { t_->del(key); }
  void touch(std::string_view key) override { t_->touch(key); }
  void add(std::string_view key, std::int64_t amount) override { t_->add(key, amount); }
  void add_limited(std::string_view key, std::int64_t amount, std::int64_t limit) override {
    t_->add_limited(key, amount, limit);
  }
  void max(std::string_view key, std::int64_t value) override { t_->max(key, value); }
  void clear(std::string_view key) override { t_->clear(key); }
  Status commit(kv::Durability durability) override {
    if (auto what = std::exchange(engine_.what_, nullptr)) what();
    return t_->commit(durability);
  }

 private:
  InterleavedEngine& engine_;
  const std::unique_ptr<kv::Transaction> t_;
};

inline std::unique_ptr<kv::Transaction> InterleavedEngine::begin() {
  return std::make_unique<InterleavedTransaction>(*this);
}

}  // namespace starlane::meta
