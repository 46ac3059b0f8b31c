// What commands may ask of a running mount: who does what (`/profile`), and an access log that is
// begun and ended at run time (`/access-log`). Any thread.
#pragma once
#include <memory>
#include <string>

#include "common/mutex.h"
#include "fuse/watch/access_log.h"
#include "fuse/watch/profile.h"
#include "fuse/watch/tap.h"
#include "wire/roles.h"

namespace starlane::wire {

class MountWatch {
 public:
  /// Both outlive it; mountpoint: no log may lie in it.
  MountWatch(fuse::Tap& tap, const std::string& mountpoint) : tap_(tap), mountpoint_(mountpoint) {}
  /// Ends the log and the profile.
  ~MountWatch();

  /// invalid, exists and so on: one sentence.
  Status begin_log(const std::string& file) SL_EXCLUDES(m_);
  Result<std::string> ask(const std::string& method, const std::string& page,
                          const Role::Query& query) SL_EXCLUDES(m_);

 private:
  Status end_log() SL_EXCLUDES(m_);
  std::string log_state() SL_EXCLUDES(m_);
  std::string profile_page() SL_EXCLUDES(m_);

  fuse::Tap& tap_;
  const std::string mountpoint_;
  Mutex m_;
  std::shared_ptr<fuse::AccessLog> log_ SL_GUARDED_BY(m_);
  std::shared_ptr<fuse::Profile> profile_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::wire
