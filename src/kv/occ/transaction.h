// A transaction of the embedded engines: reads its snapshot, gathers what the commit is to check
// and write. One thread at a time.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/engine.h"
#include "kv/occ/intent.h"

namespace starlane::kv::occ {

class Resolver;

class Transaction final : public kv::Transaction {
 public:
  Transaction(Resolver& resolver, SnapshotPtr snapshot) : resolver_(resolver) {
    intent_.snapshot = std::move(snapshot);
  }

  Result<std::optional<Row>> get(std::string_view key) override;
  Result<std::vector<std::optional<Row>>> get_many(const std::vector<std::string>& keys) override;
  Result<std::vector<Row>> scan(const ScanOptions& options) override;
  Result<std::int64_t> total(std::string_view key) override;
  Result<std::vector<std::int64_t>> totals(const std::vector<std::string>& keys) override;

  void expect(std::string_view key, Version version) override;
  void guard(std::string_view key) override;
  void expect_empty(std::string_view first, std::string_view last) override;
  void put(std::string_view key, std::string_view value) override;
  void del(std::string_view key) override;
  void touch(std::string_view key) override;
  void add(std::string_view key, std::int64_t amount) override;
  void add_limited(std::string_view key, std::int64_t amount, std::int64_t limit) override;
  void max(std::string_view key, std::int64_t value) override;
  void clear(std::string_view key) override;
  Status commit(Durability durability) override;

 private:
  Result<std::optional<Row>> read(std::string&& stored_key, std::optional<std::string>&& stored);
  void remember(std::string&& stored_key, Version version);
  void change(std::string_view key, TotalChange change);

  Resolver& resolver_;
  Intent intent_;
  std::unordered_map<std::string, Version>
      read_;  // Rows got by name: expect() needs no second look.
  bool committed_ = false;
};

}  // namespace starlane::kv::occ
