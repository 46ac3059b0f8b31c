// What fsck needs to tell a write that was lost unsynced from damage. Metadata may become durable a
// moment before the blocks it names: the log carries later commits with it, and a store may be away
// when it is flushed. So the engine keeps up to when all blocks were on their devices, and every
// start without a proper end leaves a window: what was committed in it may lack its blocks. One
// thread at a time; a process that has the engine for itself.
#pragma once
#include <vector>

#include "common/clock.h"
#include "kv/engine.h"
#include "meta/rows.h"

namespace starlane::meta {

/// Row f: of what was committed before `synced_ns`, every block was on its device.
struct FlushedRow {
  RowHeader header;  // flags: kEndedWell
  std::uint64_t synced_ns = 0;
  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.synced_ns);
  }
  std::string encode() const { return encode_row(*this); }
  static Result<FlushedRow> decode(std::string_view value);
};
inline constexpr std::uint8_t kEndedWell = 1;  // and nothing was committed afterwards

/// Row l: what was committed from `since_ns` (the key) on, of slices below `below`, may lack its
/// blocks.
struct WindowRow {
  RowHeader header;
  SliceId below;
  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.below);
  }
  std::string encode() const { return encode_row(*this); }
  static Result<WindowRow> decode(std::string_view value);
};

class FlushMarks {
 public:
  FlushMarks(kv::Engine& engine, const Clock& clock) : engine_(engine), clock_(clock) {}

  /// Before the first change: a life that did not end well becomes a window.
  Status begin();
  /// During a flush, after all stores were synced, which began at `asked_ns`.
  Status synced(std::uint64_t asked_ns);
  /// After the last flush.
  Status end();

 private:
  Status put(std::uint64_t synced_ns, std::uint8_t flags);

  kv::Engine& engine_;
  const Clock& clock_;
  std::uint64_t written_ns_ = 0;
};

/// The windows, as `t` sees them.
class SyncWindows {
 public:
  static Result<SyncWindows> read(kv::Transaction& t);
  bool empty() const { return windows_.empty(); }
  /// Whether a slice of a file that was last changed at `changed_ns` may never have been synced.
  bool may_lack(SliceId slice, std::uint64_t changed_ns) const;

 private:
  struct Window {
    std::uint64_t since_ns = 0;
    SliceId below;
  };
  std::vector<Window> windows_;
};

}  // namespace starlane::meta
