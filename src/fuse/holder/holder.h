// The parent of a mount's daemon: keeps what must outlive it (/dev/fuse above all) and starts
// another one with the same descriptors when it dies, hangs, or is to be of another build. It reads
// nothing from the mount, the network or a disk, and needs little but the C library: what does
// little rarely fails. One thread.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/holder/message.h"

namespace starlane::fuse {

class Holder {
 public:
  struct Options {
    std::vector<std::string> arguments;  // of the daemon; its program is this one
    int ready_fd = -1;                   // told, once, that the mount serves or why it cannot
    int hang_limit_ms = 5000;            // so long without a beat, and a daemon is killed; 0: never
    int leave_limit_ms = 3000;           // a daemon that was told to leave ends by then
    // Told to stop between two daemons, it waits so long for one that can store what was written.
    int stop_limit_ms = 10'000;
  };

  explicit Holder(Options options);
  /// Until the daemon has ended by itself or was told to stop by SIGTERM, SIGINT or SIGHUP; the
  /// exit code of the process. No dead mount stays behind.
  int run();

 private:
  enum class State { starting, serving, leaving, stopping };

  bool spawn();
  [[noreturn]] void become_daemon(pid_t holder, int channel, char* const* environment);
  bool welcome();
  void wait();
  void take_signals();
  void begin_stop();
  void give_up();
  bool keeps_mount() const;
  void take_messages();
  void take(const HolderMessage& message, int fd);
  void check_life();
  void reap();
  int after_death(int status);
  void fall_back();
  void tell_ready(const char* line);
  void accept_control();
  void take_request();
  void begin_upgrade(const char* path);
  void answer(const char* line);

  Options options_;
  std::vector<char*> argv_;
  std::string program_;      // path of the daemon's binary
  UniqueFd binary_;          // the file itself, whatever the path has become
  std::string old_program_;  // during an upgrade, until the new one serves
  UniqueFd old_binary_;
  UniqueFd signals_;
  UniqueFd items_[kHeldItems];
  UniqueFd control_client_;  // who asked for the upgrade that is under way

  State state_ = State::starting;
  bool ever_ready_ = false;
  pid_t daemon_ = -1;
  UniqueFd channel_;
  unsigned generation_ = 0;
  char cause_[200] = {};
  int signal_ = 0;               // that ended the daemon before
  char device_number_[24] = {};  // of the mount that is kept
  long long started_ms_ = 0;
  long long heard_ms_ = 0;
  long long turned_ms_ = 0;  // when it last came round
  long long leaving_ms_ = 0;
  long long stop_asked_ms_ = 0;  // 0: it was not
  int failed_starts_ = 0;        // in a row
  long long restart_ms_ = 0;     // when there is no daemon
  int exit_code_ = -1;           // of the holder, once it is known
};

}  // namespace starlane::fuse
