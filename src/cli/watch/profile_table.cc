#include "cli/watch/profile_table.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "metrics/merge.h"

namespace starlane::cli {
namespace {

using Key = std::pair<std::uint32_t, std::string>;

void add_to(ProfileRow& sum, const ProfileRow& row) {
  sum.took += row.took;
  sum.errors += row.errors;
  sum.bytes += row.bytes;
}

std::vector<ProfileRow> sorted(std::vector<ProfileRow> rows) {
  std::ranges::stable_sort(rows, std::greater(),
                           [](const ProfileRow& row) { return row.took.sum; });
  return rows;
}

}  // namespace

Status ProfileTable::add(std::string_view page) {
  std::vector<ProfileRow> found;
  try {
    const auto json = nlohmann::json::parse(page);
    for (const auto& one : json.at("rows")) {
      ProfileRow row;
      one.at("pid").get_to(row.pid);
      one.at("process").get_to(row.process);
      one.at("operation").get_to(row.operation);
      one.at("errors").get_to(row.errors);
      one.at("bytes").get_to(row.bytes);
      one.at("total_ns").get_to(row.took.sum);
      one.at("buckets").get_to(row.took.buckets);
      found.push_back(std::move(row));
    }
    dropped_ += json.at("dropped").get<std::uint64_t>();
  } catch (const nlohmann::json::exception&) {
    return Status(Errc::corrupt,
                  "the mount's profile cannot be understood: is it of this version?");
  }
  rows_.insert(rows_.end(), std::make_move_iterator(found.begin()),
               std::make_move_iterator(found.end()));
  return {};
}

ProfileTable ProfileTable::since(const ProfileTable& before) const {
  std::map<Key, const ProfileRow*> old;
  for (const ProfileRow& row : before.rows_) old[{row.pid, row.operation}] = &row;
  ProfileTable out;
  out.dropped_ = dropped_ - std::min(dropped_, before.dropped_);
  for (ProfileRow row : rows_) {
    const auto at = old.find({row.pid, row.operation});
    // Fewer than before: the profile was begun anew meanwhile.
    if (at != old.end() && at->second->took.count() <= row.took.count()) {
      for (std::size_t i = 0; i < metrics::kBuckets; ++i)
        row.took.buckets[i] -= std::min(row.took.buckets[i], at->second->took.buckets[i]);
      row.took.sum -= std::min(row.took.sum, at->second->took.sum);
      row.errors -= std::min(row.errors, at->second->errors);
      row.bytes -= std::min(row.bytes, at->second->bytes);
    }
    if (row.took.count() != 0) out.rows_.push_back(std::move(row));
  }
  return out;
}

std::vector<ProfileRow> ProfileTable::by_operation() const {
  std::map<std::string, ProfileRow> sums;
  for (const ProfileRow& row : rows_) {
    ProfileRow& sum = sums[row.operation];
    sum.operation = row.operation;
    add_to(sum, row);
  }
  std::vector<ProfileRow> out;
  for (auto& [name, row] : sums) out.push_back(std::move(row));
  return sorted(std::move(out));
}

std::vector<ProfileRow> ProfileTable::by_process() const {
  std::map<std::uint32_t, ProfileRow> sums;
  for (const ProfileRow& row : rows_) {
    ProfileRow& sum = sums[row.pid];
    sum.pid = row.pid;
    sum.process = row.process;
    add_to(sum, row);
  }
  std::vector<ProfileRow> out;
  for (auto& [pid, row] : sums) out.push_back(std::move(row));
  return sorted(std::move(out));
}

std::vector<ProfileRow> ProfileTable::rows() const { return sorted(rows_); }

}  // namespace starlane::cli
