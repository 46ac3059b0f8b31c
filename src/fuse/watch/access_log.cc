#include "fuse/watch/access_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/errno.h"
#include "common/log.h"

namespace starlane::fuse {
namespace {

constexpr std::size_t kPending = 256 << 10;

}  // namespace

Result<std::shared_ptr<AccessLog>> AccessLog::open(const std::string& file) {
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd) return system_error("cannot write the access log " + file, errno);
  std::string first(client::kAccessLogHeader.size(), '\0');
  const ssize_t got = ::pread(fd.get(), first.data(), first.size(), 0);
  if (got > 0 && first != client::kAccessLogHeader)
    return Status(Errc::exists, file + " is there and no access log; name another file");
  std::shared_ptr<AccessLog> log(new AccessLog(file, std::move(fd)));
  if (got == 0) log->pending_ = std::string(client::kAccessLogHeader) + "\n";
  return log;
}

void AccessLog::take(const client::AccessEntry& entry) {
  pending_ += to_line(entry);
  if (pending_.size() >= kPending) pause();
}

bool AccessLog::pause() {
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      if (!failed_)
        SL_LOG(error, "event=access_log_failed file={} error=\"{}\"", file_, std::strerror(errno));
      failed_ = true;
      break;
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  pending_.clear();
  return true;
}

}  // namespace starlane::fuse
