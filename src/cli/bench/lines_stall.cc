// What programs feel when the mount's daemon is killed under them: the longest that a read and a
// write took meanwhile.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "cli/bench/bench.h"
#include "cli/bench/bytes.h"
#include "cli/bench/memory.h"
#include "cli/bench/pattern.h"
#include "common/clock.h"
#include "common/errno.h"
#include "common/unique_fd.h"

namespace starlane::cli::bench {
namespace {

constexpr std::uint64_t kLength = 32_MiB;  // below what passthrough serves without the daemon
constexpr std::uint64_t kStep = 64_KiB;
constexpr Milliseconds kBefore{300}, kAfter{500};
constexpr Nanoseconds kReplaceLimit = std::chrono::seconds(60);

/// Calls `step` until it is told to end; how long the longest call took.
class Worker {
 public:
  explicit Worker(std::function<Status(std::uint64_t number)> step)
      : step_(std::move(step)), thread_([this] { run(); }) {}
  ~Worker() { stop(); }

  Result<double> end() {
    stop();
    if (!failed_.ok()) return failed_;
    return longest_;
  }

 private:
  void stop() {
    ending_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void run() {
    for (std::uint64_t number = 0; !ending_ && failed_.ok(); ++number) {
      const Result<double> seconds = timed([&] { return step_(number); });
      failed_ = seconds.status();
      if (seconds.ok()) longest_ = std::max(longest_, *seconds);
    }
  }

  const std::function<Status(std::uint64_t)> step_;
  std::atomic<bool> ending_{false};  // set by `stop`, seen by the thread
  Status failed_;                    // the thread's until it has ended
  double longest_ = 0;
  std::thread thread_;
};

Result<pid_t> daemon_of(const Site& site) {
  const nlohmann::json status = SL_TRY(site.status());
  return status.at("roles").at("mount").at("pid").get<pid_t>();
}

Status kill_daemon(const Site& site) {
  const pid_t killed = SL_TRY(daemon_of(site));
  std::this_thread::sleep_for(kBefore);
  if (::kill(killed, SIGKILL) != 0) return system_error("cannot kill the mount's daemon", errno);
  for (const Deadline deadline = Deadline::after(kReplaceLimit);;) {
    const Result<pid_t> now = daemon_of(site);
    if (now.ok() && *now != killed) break;
    if (deadline.passed()) return {Errc::timeout, "no daemon took the place of the killed one"};
    std::this_thread::sleep_for(Milliseconds(20));
  }
  std::this_thread::sleep_for(kAfter);
  return {};
}

struct Stalls {
  double read = 0, write = 0;
};
Result<Stalls> stalls_of(Bench& bench) {
  const UniqueFd reading(::open(bench.file("stalled").c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  const UniqueFd writing(
      ::open(bench.file("written").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!reading || !writing) return system_error("cannot open a file of the volume", errno);
  const Memory read_room = SL_TRY(Memory::of(kStep)), write_room = SL_TRY(Memory::of(kStep));
  const auto at = [](std::uint64_t number) { return number * kStep % kLength; };
  Worker reader([&](std::uint64_t number) -> Status {
    if (::pread(reading.get(), read_room.span().data(), kStep, static_cast<off_t>(at(number))) !=
        static_cast<ssize_t>(kStep))
      return system_error("read", errno);
    return check_stamps(Bench::kSeed, at(number), read_room.span());
  });
  Worker writer([&](std::uint64_t number) -> Status {
    stamp(Bench::kSeed, at(number), write_room.span());
    if (::pwrite(writing.get(), write_room.span().data(), kStep, static_cast<off_t>(at(number))) !=
        static_cast<ssize_t>(kStep))
      return system_error("write", errno);
    return {};
  });
  SL_TRY(kill_daemon(bench.site));
  Stalls stalls;
  stalls.read = SL_TRY(reader.end());
  stalls.write = SL_TRY(writer.end());
  if (::fsync(writing.get()) != 0) return system_error("fsync", errno);
  return stalls;
}

}  // namespace

Status line_stall(Bench& bench, const std::string& name) {
  SL_TRY(bench.need_files({{"stalled", kLength}}));
  for (const Mode* mode : {&kTogether, &kApart}) {
    Row read, write;
    for (Row* row : {&read, &write}) {
      row->line = name;
      row->how = mode->name;
      row->unit = Unit::seconds;
      row->bar = {Bar::Of::value_below, 2};
    }
    read.what = "a read of 64 KiB while the mount's daemon is killed";
    write.what = "a write of 64 KiB meanwhile";
    SL_TRY(bench.site.cold(*mode));
    for (std::size_t round = 0; round < bench.runs(); ++round) {
      bench.say(read, round);
      const Stalls stalls = SL_TRY(stalls_of(bench));
      read.values.push_back(stalls.read);
      write.values.push_back(stalls.write);
    }
    bench.add(std::move(read));
    bench.add(std::move(write));
  }
  return {};
}

}  // namespace starlane::cli::bench
