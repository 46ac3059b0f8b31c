#include "fuse/watch/profile.h"

#include <fstream>

namespace starlane::fuse {
namespace {

std::string name_of(std::uint32_t pid) {
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
  return name.empty() ? "-" : name;
}

}  // namespace

void Profile::take(const client::AccessEntry& entry) {
  MutexLock lock(m_);
  std::uint32_t pid = entry.pid;
  if (!processes_.contains(pid)) {
    if (processes_.size() >= kProcesses) pid = 0;
    processes_.emplace(pid, pid == 0 ? "(others)" : name_of(pid));
  }
  Row& row = rows_[{pid, entry.operation}];
  if (row.operation.empty()) {
    row.pid = pid;
    row.process = processes_.at(pid);
    row.operation = entry.operation;
  }
  const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(entry.took.count(), 0));
  ++row.took.buckets[metrics::bucket_of(ns)];
  row.took.sum += ns;
  row.bytes += entry.result;
  row.errors += entry.error != 0;
}

bool Profile::pause() {
  MutexLock lock(m_);
  ended_ = system_clock().boot() - looked_ > patience_;
  return !ended_;
}

bool Profile::ended() const {
  MutexLock lock(m_);
  return ended_;
}

std::vector<Profile::Row> Profile::rows() {
  std::vector<Row> out;
  MutexLock lock(m_);
  looked_ = system_clock().boot();
  for (const auto& [key, row] : rows_) out.push_back(row);
  return out;
}

}  // namespace starlane::fuse
