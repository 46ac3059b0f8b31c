#include "cli/bench/bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "cli/bench/memory.h"
#include "cli/bench/pattern.h"
#include "common/errno.h"
#include "common/mutex.h"
#include "common/rng.h"
#include "common/unique_fd.h"

namespace starlane::cli::bench {
namespace fs = std::filesystem;
namespace {

Result<UniqueFd> open_for_reading(const fs::path& file, int flags) {
  UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!fd) return system_error("cannot open " + file.string(), errno);
  return fd;
}

Result<std::uint64_t> length_of(const UniqueFd& fd) {
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0) return system_error("fstat", errno);
  return static_cast<std::uint64_t>(about.st_size);
}

struct Part {
  int fd;
  std::uint64_t seed;
  std::uint64_t from;
  std::uint64_t to;
};

Status read_part(const Part& part, std::size_t step) {
  const Memory room = SL_TRY(Memory::of(step));
  for (std::uint64_t at = part.from; at < part.to;) {
    const std::size_t want = std::min<std::uint64_t>(step, part.to - at);
    const ssize_t n = ::pread(part.fd, room.span().data(), want, static_cast<off_t>(at));
    if (n < 0) return system_error("read", errno);
    if (n == 0) return Status(Errc::corrupt, "the file ends at " + std::to_string(at));
    SL_TRY(check_stamps(part.seed, at, room.span().first(static_cast<std::size_t>(n))));
    at += static_cast<std::uint64_t>(n);
  }
  return {};
}

Status write_all(int fd, ByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) return system_error("write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace

Status in_threads(std::size_t threads, const std::function<Status(std::size_t)>& work) {
  Mutex m;
  Status first;
  const auto one = [&](std::size_t number) {
    const Status status = work(number);
    MutexLock lock(m);
    if (first.ok()) first = status;
  };
  std::vector<std::thread> running;
  for (std::size_t t = 1; t < threads; ++t) running.emplace_back(one, t);
  one(0);
  for (std::thread& thread : running) thread.join();
  return first;
}

Result<double> timed(const std::function<Status()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  SL_TRY(work());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Result<double> per_second(double amount, const Result<double>& seconds) {
  return seconds.ok() ? Result<double>(amount / *seconds) : seconds;
}

Result<double> read_files(const ReadPlan& plan) {
  std::uint64_t bytes = 0;
  std::vector<UniqueFd> open;
  const Result<double> seconds = timed([&]() -> Status {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < plan.files.size(); ++i) {
      open.push_back(SL_TRY(open_for_reading(plan.files[i], plan.direct ? O_DIRECT : 0)));
      const std::uint64_t length = SL_TRY(length_of(open.back()));
      bytes += length;
      const std::size_t shares = plan.files.size() == 1 ? plan.threads : 1;
      const std::uint64_t share = round_up(divide_up(length, shares), plan.step);
      for (std::uint64_t at = 0; at < length; at += share)
        parts.push_back({open.back().get(), plan.seeds[i], at, std::min(length, at + share)});
    }
    return in_threads(parts.size(), [&](std::size_t t) { return read_part(parts[t], plan.step); });
  });
  return per_second(static_cast<double>(bytes), seconds);
}

Result<double> write_file(const WritePlan& plan) {
  const Memory room = SL_TRY(Memory::of(1_MiB));
  fill_random(plan.seed, room.span());
  const Result<double> seconds = timed([&]() -> Status {
    const UniqueFd fd(::open(plan.file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd) return system_error("cannot make " + plan.file.string(), errno);
    for (std::uint64_t at = 0; at < plan.length; at += room.span().size()) {
      const auto piece =
          room.span().first(std::min<std::uint64_t>(room.span().size(), plan.length - at));
      stamp(plan.seed, at, piece);
      SL_TRY(write_all(fd.get(), piece));
    }
    if (plan.durable && ::fsync(fd.get()) != 0) return system_error("fsync", errno);
    return {};
  });
  return per_second(static_cast<double>(plan.length), seconds);
}

Result<double> random_reads(const RandomPlan& plan) {
  const UniqueFd fd = SL_TRY(open_for_reading(plan.file, plan.direct ? O_DIRECT : 0));
  const std::uint64_t pages = SL_TRY(length_of(fd)) / kPage;
  if (pages == 0) return Status(Errc::invalid, plan.file.string() + " is shorter than a page");
  const Result<double> seconds = timed([&] {
    return in_threads(plan.threads, [&](std::size_t thread) -> Status {
      Rng rng(plan.seed + thread);
      alignas(kPage) std::byte room[kPage];
      for (std::size_t i = thread; i < plan.reads; i += plan.threads) {
        const std::uint64_t at = rng.below(pages) * kPage;
        if (::pread(fd.get(), room, kPage, static_cast<off_t>(at)) != static_cast<ssize_t>(kPage))
          return system_error("read", errno);
        SL_TRY(check_stamps(plan.seed, at, room));
      }
      return {};
    });
  });
  return per_second(static_cast<double>(plan.reads), seconds);
}

}  // namespace starlane::cli::bench
