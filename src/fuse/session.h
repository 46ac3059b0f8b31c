// One mount from start to stop: speaks the kernel's protocol for a Vfs on threads of its own.
// `wait` and `stop` may be called by any thread; the process must not touch the mount from the
// Vfs's own threads.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/takeover/ledger.h"
#include "client/vfs.h"
#include "common/mutex.h"
#include "common/status.h"
#include "fuse/backing.h"
#include "fuse/in_flight.h"
#include "fuse/mount.h"
#include "fuse/negotiate.h"
#include "fuse/notifier.h"
#include "fuse/quick_wake.h"
#include "fuse/serve.h"
#include "fuse/suspects.h"
#include "fuse/watch/operations.h"
#include "fuse/watch/tap.h"
#include "fuse/workers.h"

namespace starlane::fuse {

/// Shows `inside`, a path below the mount ("volumes/NAME"), at `target`, a directory elsewhere.
struct Bind {
  std::string inside;
  std::string target;
};

struct SessionOptions {
  std::string mountpoint;
  std::vector<Bind> binds;  // only as root
  bool passthrough = true;  // if the kernel (6.9) can and the process is root
  std::uint32_t max_write =
      1 << 20;  // bytes of a READ or WRITE; beyond 1 MiB only as fs.fuse.max_pages_limit allows
  std::uint32_t read_ahead_kib = 4096;  // of the mount's device; needs root
  std::size_t max_threads = 512;        // requests that may block at once before others queue
  std::size_t idle_threads = 4;
  bool quick_wake = true;   // see quick_wake.h; needs root
  Milliseconds slow{1000};  // an operation that took longer is logged; 0: none is

  // For a mount that outlives its daemon (holder/).
  client::Ledger* ledger = nullptr;  // outlives the session
  int device = -1;                   // of the daemon before, whose mount this session goes on with
  bool after_crash = false;          // of that daemon
  // Takes the device over for the next one. Called once, before the first request, if the kernel
  // can send requests again.
  std::function<Status(const Mount& mount)> keep{};
};

struct KeptMount;

class Session {
 public:
  /// Mounts, starts the Vfs, serves, and binds; usable when it returns. Errors are sentences for
  /// the user. vfs outlives it.
  static Result<std::unique_ptr<Session>> start(client::Vfs& vfs, const SessionOptions& options);
  /// Stops if that has not happened.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Blocks until somebody unmounted it, or `timeout` has passed (false).
  bool wait_unmounted(std::chrono::milliseconds timeout) { return workers_->wait_ended(timeout); }
  /// Unmounts lazily (binds first), ends the connection, waits for requests being served, stops the
  /// Vfs. Idempotent; the answer is the Vfs's.
  Status stop() SL_EXCLUDES(stop_m_);
  /// Takes no more requests and waits at most so long until those begun are answered; nothing is
  /// unmounted or closed: the process ends next, and another goes on.
  void drain(std::chrono::milliseconds limit);
  /// The mount outlives this process.
  bool kept() const { return kept_; }

  client::KernelNotifier& notifier() { return notifier_; }
  const client::KernelFeatures& features() const { return features_; }
  /// The kernel's INIT.
  const InitIn& heard() const { return heard_; }
  bool raised_read_ahead() const { return raised_read_ahead_; }
  /// For people: "on …" or "off: …".
  std::string quick_wake() const;
  const std::string& mountpoint() const { return mount_.mountpoint(); }
  /// What this mount lacks and why, for people; empty when nothing.
  const std::vector<std::string>& limitations() const { return limitations_; }

  struct Figures {
    std::uint64_t requests = 0, stored_bytes = 0;
    std::size_t in_flight = 0, threads = 0, most_threads = 0, backing_files = 0;
    std::int64_t waiting = -1;  // sent by the kernel's users and unanswered; -1: it does not say
  };
  Figures figures();
  Operations& operations() { return operations_; }
  Tap& tap() { return tap_; }

 private:
  Session(client::Vfs& vfs, const SessionOptions& options, Mount mount);

  Status begin();
  Status receive_init();
  Status answer_init(ByteSpan bytes);
  Status go_on(const KeptMount& left);
  Status hand_on();
  Status note_facts();
  void start_serving();
  void start_quick_wake();
  std::uint32_t probe_backing() const;
  Status bind_all();
  void unbind_all();
  void end_connection();
  void serve(ByteSpan bytes);
  void serve_counted(Request& request, Reply& reply);
  void log_slow(const Request& request, const Reply& reply, Nanoseconds took);
  void refuse_suspect(const Request& request, Reply& reply);
  void note_begun(const Request& request);
  void give_up(std::uint64_t unique);
  void interrupt(const Request& request);

  client::Vfs& vfs_;
  const SessionOptions options_;
  Mount mount_;
  Notifier notifier_;
  BackingTable backing_;
  Suspects suspects_;
  client::KernelFeatures features_;
  bool kernel_checks_flags_ = false;
  InitIn heard_{};
  bool raised_read_ahead_ = false;
  bool wide_setxattr_ = false;  // what INIT settled; before the first request
  bool resend_ = false;         // the kernel can send requests again
  bool kept_ = false;
  std::vector<std::string> limitations_;
  std::vector<std::string> bound_;
  Operations operations_;
  Tap tap_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<InFlight> in_flight_;
  std::atomic<std::uint64_t> requests_{0};  // a figure; pairs with nothing
  std::string no_quick_wake_ = "not wanted";
  std::unique_ptr<QuickWake> quick_wake_;  // null: see no_quick_wake_
  std::unique_ptr<Workers> workers_;

  Mutex stop_m_;  // held for all of stop, so that a second caller waits for the first
  bool stopped_ SL_GUARDED_BY(stop_m_) = false;
  bool vfs_started_ = false;
  Status stop_status_ SL_GUARDED_BY(stop_m_);
};

}  // namespace starlane::fuse
