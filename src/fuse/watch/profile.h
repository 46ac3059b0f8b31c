// Which process does what in a mount: operations by process and kind, counted since the profile was
// begun. Bounded: processes beyond the limit count as one. Ends by itself when nobody has looked
// for a while. Any thread.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "fuse/watch/tap.h"
#include "metrics/meter.h"

namespace starlane::fuse {

class Profile final : public Tap::Listener {
 public:
  struct Row {
    std::uint32_t pid = 0;  // 0: the kernel itself, and processes beyond the limit
    std::string process;    // its name, as it was when first seen; "-": it was gone by then
    std::string operation;
    std::uint64_t errors = 0, bytes = 0;
    metrics::Counted took;
  };

  /// patience: without a look it ends.
  explicit Profile(Nanoseconds patience = std::chrono::seconds(30)) : patience_(patience) {}

  void take(const client::AccessEntry& entry) override SL_EXCLUDES(m_);
  bool pause() override SL_EXCLUDES(m_);
  /// A look.
  std::vector<Row> rows() SL_EXCLUDES(m_);
  bool ended() const SL_EXCLUDES(m_);

 private:
  static constexpr std::size_t kProcesses = 512;

  using Key = std::pair<std::uint32_t, std::string>;
  const Nanoseconds patience_;
  mutable Mutex m_;
  Nanoseconds looked_ SL_GUARDED_BY(m_) = system_clock().boot();
  bool ended_ SL_GUARDED_BY(m_) = false;
  std::map<std::uint32_t, std::string> processes_ SL_GUARDED_BY(m_);
  std::map<Key, Row> rows_ SL_GUARDED_BY(m_);
};

}  // namespace starlane::fuse
