// How a host maps large files: which opens go through the kernel to a huge-page cache file
// (passthrough), and which incarnation of a file's kernel inode each open and lookup names. Any
// thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "client/file_io.h"
#include "client/vfs.h"

namespace starlane::client {

/// What is to be done with an open.
struct OpenDecision {
  enum class Kind : std::uint8_t {
    moved,  // answer stale_handle: the kernel will look up again and find the preferred incarnation
    cached,       // serve it on this node, through the page cache
    direct,       // serve it on this node, past the page cache
    passthrough,  // serve it on this node from backing_fd
  } kind = Kind::cached;
  int backing_fd = -1;
};

class Ledger;

class Incarnations {
 public:
  virtual ~Incarnations() = default;

  virtual void start(KernelNotifier* notifier, const KernelFeatures& features) = 0;
  virtual void stop() = 0;

  /// The incarnation that a LOOKUP (and readdirplus) of the file must name now.
  virtual std::uint8_t preferred(FileKey file) = 0;
  struct Open {
    FileKey file;
    Node node;        // as the kernel asked
    FileState state;  // as the open gate answered
    std::uint32_t flags = 0;
    bool written = false;  // some session (this one too) has it open for writing
    std::uint64_t unique = 0;
    std::uint32_t pid =
        0;  // the caller's: whose next open of the file, after `moved`, is always served
  };
  /// May wait for a fill (interruptibly). Counts the open unless it answers moved: release must
  /// follow.
  virtual Result<OpenDecision> open(const Open& open) = 0;
  /// The application behind an open that waits was signalled: it ends with `interrupted`.
  virtual void interrupt(std::uint64_t) {}
  virtual void release(FileKey file, Node node, bool writer) = 0;
  /// An open of an earlier daemon, which the kernel has still: counted, as `open` did. passthrough:
  /// as it was answered. After `start`, before the first request.
  virtual void reopened(FileKey /*file*/, Node /*node*/, bool /*writer*/, bool /*passthrough*/) {}
  /// The kernel forgot the node: its incarnation number may be used again.
  virtual void forget(FileKey file, Node node) = 0;

  /// Before it is acknowledged: mirrored into a live backing file.
  virtual void local_write(FileKey file, std::uint64_t offset, ByteSpan bytes) = 0;
  virtual void local_truncate(FileKey file, std::uint64_t length) = 0;
  /// [offset, offset + length) reads as zeros, as far as the file reaches.
  virtual void local_zero(FileKey file, std::uint64_t offset, std::uint64_t length) = 0;
  /// A live incarnation of `previous` is from now on one of `current`.
  virtual void local_commit(FileKey file, std::uint64_t previous, const FileState& current) = 0;
  /// Retires what is live: old mappings keep the version they opened.
  virtual void remote_change(FileKey file) = 0;

  /// Bytes of a version that the cache holds already (whole or partly filled), so that a read of
  /// incarnation 0 need not fetch them again; nullopt when any of the range is missing. Kept alive
  /// by the piece.
  virtual std::optional<Piece> peek(FileKey, const FileState&, std::uint64_t /*offset*/,
                                    std::uint32_t /*length*/) {
    return std::nullopt;
  }

  /// Fills ahead of any open (`starlane warm`); returns when complete or refused (no_space in the
  /// budget).
  virtual Status warm(FileKey file, const FileState& state) = 0;

  struct Figures {
    std::uint64_t files = 0, bytes = 0, budget_bytes = 0, passthrough_opens = 0, filled_bytes = 0;
    bool enabled = false;
    std::string reason;  // why passthrough is off, for people
  };
  virtual Figures figures() = 0;
};

struct NodeCacheOptions {
  bool passthrough = true;  // false: as on a kernel without it
  std::uint64_t budget_bytes = 1 << 30;
  std::uint64_t min_file_bytes = 64 << 20;  // smaller files are not filled
  std::uint32_t fill_threads = 0;           // 0: 4, or as many as cores if that is more, at most 16
  std::uint32_t fill_read_bytes = 4 << 20;
  // While a copy is filling and the open does not wait: reads go past the page cache, straight from
  // what the copy has (several times as fast for large reads; a 4 KiB read costs a request).
  bool direct_while_filling = true;
  Nanoseconds wait_limit =
      std::chrono::seconds(2);  // an open waits for a fill that takes no longer
  Nanoseconds stall_limit =
      std::chrono::seconds(2);  // a wait ends when no bytes arrive for so long
  std::uint64_t push_window_bytes =
      0;  // 0: as the budget; pages pushed ahead of one file's readers
  double expected_bytes_per_second = 1.5e9;  // until a fill has shown it

  // For a mount that outlives its daemon (takeover/): copies are gone on with.
  Ledger* ledger = nullptr;                         // outlives the node cache
  int cache_left = -1, view_left = -1;              // the mounts of the daemon before
  std::function<void(int cache, int view)> keep{};  // takes both over for the next one
};

/// The node cache (node_cache/). io outlives it.
std::unique_ptr<Incarnations> make_incarnations(FileIo& io, const NodeCacheOptions& options);

}  // namespace starlane::client
