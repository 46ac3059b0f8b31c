#include "wire/mount_watch.h"

#include <filesystem>
#include <nlohmann/json.hpp>

namespace starlane::wire {
namespace {

using nlohmann::json;

json row_of(const fuse::Profile::Row& row) {
  return {{"pid", row.pid},
          {"process", row.process},
          {"operation", row.operation},
          {"count", row.took.count()},
          {"errors", row.errors},
          {"bytes", row.bytes},
          {"total_ns", row.took.sum},
          {"buckets", row.took.buckets}};
}

/// The daemon that serves a mount must not touch it.
bool lies_in(const std::filesystem::path& file, const std::string& directory) {
  const auto relative = file.lexically_normal().lexically_relative(directory);
  return !relative.empty() && *relative.begin() != "..";
}

}  // namespace

MountWatch::~MountWatch() {
  MutexLock lock(m_);
  if (log_) tap_.remove(log_);
  if (profile_) tap_.remove(profile_);
}

Status MountWatch::begin_log(const std::string& file) {
  if (!std::filesystem::path(file).is_absolute())
    return Status(Errc::invalid, "name the access log by its whole path, not " + file);
  if (lies_in(file, mountpoint_))
    return Status(Errc::invalid, "an access log cannot lie in the mount that it is about: " + file);
  MutexLock lock(m_);
  if (log_)
    return Status(Errc::exists, "an access log is being written already, to " + log_->file() +
                                    "; `starlane access-log stop` ends it");
  log_ = SL_TRY(fuse::AccessLog::open(file));
  tap_.add(log_);
  return {};
}

Status MountWatch::end_log() {
  MutexLock lock(m_);
  if (!log_) return Status(Errc::invalid, "no access log is being written");
  tap_.remove(log_);
  log_.reset();
  return {};
}

std::string MountWatch::log_state() {
  MutexLock lock(m_);
  return json{{"file", log_ ? log_->file() : ""}, {"dropped", tap_.dropped()}}.dump();
}

std::string MountWatch::profile_page() {
  MutexLock lock(m_);
  if (!profile_ || profile_->ended()) {
    profile_ = std::make_shared<fuse::Profile>();
    tap_.add(profile_);
  }
  json rows = json::array();
  for (const auto& row : profile_->rows()) rows.push_back(row_of(row));
  return json{{"dropped", tap_.dropped()}, {"rows", rows}}.dump(-1, ' ', false,
                                                                json::error_handler_t::replace);
}

Result<std::string> MountWatch::ask(const std::string& method, const std::string& page,
                                    const Role::Query& query) {
  if (page == "/profile") return profile_page();
  if (page != "/access-log") return Status(Errc::not_found, "no such page");
  if (method == "POST") {
    const auto file = query.find("file");
    SL_TRY(file != query.end() ? begin_log(file->second) : end_log());
  }
  return log_state();
}

}  // namespace starlane::wire
