#include "fuse/quick_wake.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "common/errno.h"
#include "common/log.h"
#include "common/thread_pool.h"

namespace starlane::fuse {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kNoWish = 2'000'000'000;  // the kernel's own default
constexpr unsigned kFewProcessors = 16;

template <typename T>
std::optional<T> first_of(const fs::path& file) {
  std::ifstream stream(file);
  T value{};
  return stream >> value ? std::optional<T>(value) : std::nullopt;
}

}  // namespace

Result<std::int32_t> wanted_wake_latency_us(const fs::path& sys) {
  const fs::path cpu = sys / "devices/system/cpu";
  const auto driver = first_of<std::string>(cpu / "cpuidle/current_driver");
  if (!driver || *driver == "none")
    return {Errc::unsupported, "this kernel does not say how its processors sleep"};
  if (*driver != "haltpoll") {
    const auto lightest = first_of<std::int32_t>(cpu / "cpu0/cpuidle/state1/latency");
    if (!lightest) return {Errc::unsupported, "processors sleep in one way only"};
    return *lightest;
  }
  if (first_of<std::uint64_t>(sys / "module/haltpoll/parameters/guest_halt_poll_ns").value_or(0) !=
      0)
    return {Errc::unsupported, "this virtual machine waits a while before it sleeps"};
  if (std::thread::hardware_concurrency() > kFewProcessors)
    return {Errc::unsupported, "not for so many processors of a virtual machine (see doctor)"};
  return 0;
}

Result<std::unique_ptr<QuickWake>> QuickWake::start(const Options& options,
                                                    const std::atomic<std::uint64_t>& requests) {
  UniqueFd device(::open(options.device.c_str(), O_WRONLY | O_CLOEXEC));
  if (!device) return system_error("cannot open " + options.device, errno);
  // An open device is a wish for 0 us until something is written.
  std::unique_ptr<QuickWake> started(new QuickWake(options, std::move(device), requests));
  started->wish(kNoWish);
  started->watcher_ = std::thread([here = started.get()] { here->watch(); });
  return started;
}

QuickWake::QuickWake(const Options& options, UniqueFd device,
                     const std::atomic<std::uint64_t>& requests)
    : options_(options), device_(std::move(device)), requests_(requests) {}

QuickWake::~QuickWake() {
  {
    MutexLock lock(m_);
    ended_ = true;
    changed_.notify_all();
  }
  if (watcher_.joinable()) watcher_.join();
}

void QuickWake::wish(std::int32_t latency_us) const {
  if (::pwrite(device_.get(), &latency_us, sizeof latency_us, 0) != sizeof latency_us)
    SL_LOG(debug, "event=no_quick_wake error={}", errno);
}

void QuickWake::consider() {
  MutexLock lock(m_);
  const Nanoseconds now = system_clock().boot();
  const bool fast = now - last_ <= options_.within;
  last_ = now;
  if (!fast || awake_) return;
  wish(options_.latency_us);
  awake_ = true;
  changed_.notify_all();
}

void QuickWake::watch() {
  name_this_thread("quick-wake");
  MutexLock lock(m_);
  while (!ended_) {
    if (!awake_) {
      changed_.wait(m_);
      continue;
    }
    const std::uint64_t before = requests_.load(std::memory_order_relaxed);
    changed_.wait_for(m_, options_.quiet);
    if (requests_.load(std::memory_order_relaxed) - before >= options_.burst) continue;
    wish(kNoWish);
    awake_ = false;
  }
}

}  // namespace starlane::fuse
