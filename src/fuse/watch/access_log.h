// The access log of a mount, as a file: opened, appended to by the tap's thread, flushed whenever
// nothing more has come. One user.
#pragma once
#include <memory>
#include <string>

#include "common/unique_fd.h"
#include "fuse/watch/tap.h"

namespace starlane::fuse {

class AccessLog final : public Tap::Listener {
 public:
  /// Appends to a log that is there; refuses any other file. Errors: exists, those of the system.
  static Result<std::shared_ptr<AccessLog>> open(const std::string& file);

  void take(const client::AccessEntry& entry) override;
  bool pause() override;
  const std::string& file() const { return file_; }

 private:
  AccessLog(std::string file, UniqueFd fd) : file_(std::move(file)), fd_(std::move(fd)) {}

  const std::string file_;
  const UniqueFd fd_;
  std::string pending_;
  bool failed_ = false;  // said once
};

}  // namespace starlane::fuse
