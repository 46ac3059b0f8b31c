#include "kv/occ/transaction.h"

#include <utility>

#include "kv/occ/resolver.h"

namespace starlane::kv::occ {
namespace {

/// Rows whose version a transaction keeps in mind; others are looked up once more if they are
/// expected.
constexpr std::size_t kRemembered = 256;

/// Of a row as it is stored, whose memory becomes the value's: a commit reads some ten of them.
Result<Row> decode_row(std::string_view stored_key, std::string&& stored) {
  const Version version = SL_TRY(version_of(stored));
  return Row{std::string(stored_key.substr(1)), std::move(stored.erase(0, kRowHeaderBytes)),
             version};
}

std::vector<std::string_view> views_of(const std::vector<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

}  // namespace

Result<std::optional<Row>> Transaction::read(std::string&& stored_key,
                                             std::optional<std::string>&& stored) {
  if (!stored) {
    remember(std::move(stored_key), kAbsent);
    return std::optional<Row>();
  }
  Row row = SL_TRY(decode_row(stored_key, *std::move(stored)));
  remember(std::move(stored_key), row.version);
  return std::optional<Row>(std::move(row));
}

void Transaction::remember(std::string&& stored_key, Version version) {
  if (read_.size() < kRemembered) read_.insert_or_assign(std::move(stored_key), version);
}

Result<std::optional<Row>> Transaction::get(std::string_view key) {
  std::string stored_key = row_key(key);
  auto stored = SL_TRY(intent_.snapshot->view->get(stored_key));
  return read(std::move(stored_key), std::move(stored));
}

Result<std::vector<std::optional<Row>>> Transaction::get_many(
    const std::vector<std::string>& keys) {
  std::vector<std::string> stored_keys;
  stored_keys.reserve(keys.size());
  for (const std::string& key : keys) stored_keys.push_back(row_key(key));
  auto stored = SL_TRY(intent_.snapshot->view->get_many(views_of(stored_keys)));
  std::vector<std::optional<Row>> out;
  out.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i)
    out.push_back(SL_TRY(read(std::move(stored_keys[i]), std::move(stored[i]))));
  return out;
}

Result<std::vector<Row>> Transaction::scan(const ScanOptions& options) {
  std::vector<Row> out;
  if (options.limit == 0) return out;
  Status bad;
  const auto visit = [&](std::string_view key, std::string_view stored) {
    Result<Row> row = decode_row(key, std::string(stored));
    if (row.ok())
      out.push_back(std::move(*row));
    else
      bad = row.status();
    return bad.ok() && out.size() < options.limit;
  };
  const std::string last = options.last.empty() ? std::string(kRowsEnd) : row_key(options.last);
  SL_TRY(intent_.snapshot->view->scan(row_key(options.first), last, visit));
  SL_TRY(bad);
  return out;
}

Result<std::int64_t> Transaction::total(std::string_view key) {
  const auto stored = SL_TRY(intent_.snapshot->view->get(total_key(key)));
  if (!stored) return std::int64_t{0};
  const Total total = SL_TRY(decode_total(*stored));
  return total.value;
}

Result<std::vector<std::int64_t>> Transaction::totals(const std::vector<std::string>& keys) {
  std::vector<std::string> stored_keys;
  stored_keys.reserve(keys.size());
  for (const std::string& key : keys) stored_keys.push_back(total_key(key));
  const auto stored = SL_TRY(intent_.snapshot->view->get_many(views_of(stored_keys)));
  std::vector<std::int64_t> out(keys.size(), 0);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!stored[i]) continue;
    const Total total = SL_TRY(decode_total(*stored[i]));
    out[i] = total.value;
  }
  return out;
}

void Transaction::expect(std::string_view key, Version version) {
  std::string stored_key = row_key(key);
  const auto known = read_.find(stored_key);
  std::optional<Version> at_begin;
  if (known != read_.end()) at_begin = known->second;
  intent_.expects.push_back({std::move(stored_key), version, at_begin});
}

void Transaction::guard(std::string_view key) { intent_.guards.push_back(row_key(key)); }

void Transaction::expect_empty(std::string_view first, std::string_view last) {
  intent_.empties.push_back(
      {row_key(first), last.empty() ? std::string(kRowsEnd) : row_key(last), {}});
}

void Transaction::put(std::string_view key, std::string_view value) {
  intent_.bytes += key.size() + value.size();
  intent_.rows.push_back({row_key(key), row_value(value), false});
}

void Transaction::del(std::string_view key) {
  intent_.bytes += key.size();
  intent_.rows.push_back({row_key(key), {}, true});
}

void Transaction::touch(std::string_view key) { intent_.touches.push_back(row_key(key)); }

void Transaction::change(std::string_view key, TotalChange change) {
  intent_.bytes += key.size() + kTotalBytes;
  change.key = total_key(key);
  intent_.totals.push_back(std::move(change));
}

void Transaction::add(std::string_view key, std::int64_t amount) {
  change(key, {{}, TotalChange::What::add, amount, std::nullopt});
}
void Transaction::add_limited(std::string_view key, std::int64_t amount, std::int64_t limit) {
  change(key, {{}, TotalChange::What::add, amount, limit});
}
void Transaction::max(std::string_view key, std::int64_t value) {
  change(key, {{}, TotalChange::What::greatest, value, std::nullopt});
}
void Transaction::clear(std::string_view key) {
  change(key, {{}, TotalChange::What::clear, 0, std::nullopt});
}

Status Transaction::commit(Durability durability) {
  if (std::exchange(committed_, true))
    return Status(Errc::invalid, "a transaction is committed at most once");
  return resolver_.commit(intent_, durability);
}

}  // namespace starlane::kv::occ
