// A daemon's side of its holder: what the daemon before left, and what the next one is to get. One
// thread listens and sends the beats by which the holder knows that this process lives; every
// method may be called by any thread.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/mutex.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "fuse/holder/message.h"

namespace starlane::fuse {

class Held {
 public:
  /// This process was started by a holder, and has not joined it yet.
  static bool expected();
  /// Null when this process has no holder. Takes what it was given; blocks for a moment.
  static Result<std::unique_ptr<Held>> join();
  ~Held();
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  /// Daemons of this mount before this one, and why the last of them ended.
  std::uint64_t generation() const { return generation_; }
  const std::string& cause() const { return cause_; }
  /// By a signal as a process raises against itself: what it did then may do the same to this one.
  bool after_crash() const;
  pid_t holder() const { return holder_; }

  /// What is kept under the item; -1: nothing.
  int kept(HeldItem item) const { return items_[static_cast<std::size_t>(item)].get(); }
  /// The holder keeps it from now on; when this process dies at any time after, the next one has
  /// it. fact: of the device, its number ("0:45").
  Status keep(HeldItem item, int fd, const std::string& fact = {});

  void ready();
  void failed(const std::string& sentence);
  /// Called before each beat: a daemon whose locks are stuck is to be replaced. nullptr: none.
  void check_with(std::function<void()> check) SL_EXCLUDES(m_);

  /// Readable when this process is to end: another daemon comes, or the holder is gone.
  int asked_to_end() const { return end_.get(); }
  /// Another daemon comes: nothing may be taken down that it needs.
  bool another_comes() const SL_EXCLUDES(m_);

 private:
  explicit Held(int channel);
  Status receive_all();
  void send(std::uint16_t kind, const std::string& text);
  void run();
  void listen();

  const UniqueFd channel_;
  const UniqueFd end_;
  std::array<UniqueFd, kHeldItems> items_;
  std::uint64_t generation_ = 0;
  std::string cause_;
  int signal_ = 0;  // that ended the daemon before
  pid_t holder_ = -1;

  mutable Mutex m_;  // held over the check, so that its owner may take it away
  std::function<void()> check_ SL_GUARDED_BY(m_);
  bool another_comes_ SL_GUARDED_BY(m_) = false;
  const UniqueFd stop_;
  std::thread thread_;
};

}  // namespace starlane::fuse
