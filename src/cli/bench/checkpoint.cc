#include "cli/bench/checkpoint.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>

#include "cli/bench/bytes.h"
#include "cli/bench/memory.h"
#include "cli/bench/pattern.h"
#include "common/errno.h"
#include "common/unique_fd.h"

namespace starlane::cli::bench {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kHeader = 1792;  // where torch's first record begins
constexpr std::size_t kLayers = 24;

/// Elements of one layer, in thousandths of it: attention, then the two halves of the rest, norms.
constexpr std::uint64_t kShares[] = {83, 83, 83, 83, 222, 222, 222, 1, 1};

/// Copies page by page: for whole pages at once glibc's memcpy may walk backwards, which would
/// measure the C library.
void copy_forward(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += kPage)
    std::memcpy(to + at, from + at, std::min(kPage, bytes - at));
}

struct Map {
  const std::byte* at = nullptr;
  std::uint64_t length = 0;
  ~Map() {
    if (at != nullptr) ::munmap(const_cast<std::byte*>(at), length);
  }
};

Result<UniqueFd> open_file(const fs::path& file) {
  UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return system_error("cannot open " + file.string(), errno);
  return fd;
}

Status read_at(const UniqueFd& fd, std::uint64_t offset) {
  std::byte room[kPage];
  if (::pread(fd.get(), room, sizeof room, static_cast<off_t>(offset)) < 0)
    return system_error("read", errno);
  return {};
}

/// As torch.load does: the first page, the end, where the directory of the archive lies, and the
/// header before each record.
Status read_headers(const UniqueFd& fd, std::uint64_t length, const std::vector<Record>& records) {
  SL_TRY(read_at(fd, 0));
  SL_TRY(read_at(fd, round_down(length - 1, kPage)));
  for (const Record& record : records) SL_TRY(read_at(fd, record.offset - kAlignment));
  return {};
}

Status map_file(const UniqueFd& fd, std::uint64_t length, Map* map) {
  void* const at = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd.get(), 0);
  if (at == MAP_FAILED) return system_error("mmap", errno);
  map->at = static_cast<const std::byte*>(at);
  map->length = length;
  ::posix_fadvise(fd.get(), 0, static_cast<off_t>(length), POSIX_FADV_SEQUENTIAL);
  return {};
}

/// A thread's share of a record, into the same place of `into`, or round and round in a small one.
void copy_share(const Map& map, std::uint64_t from, std::uint64_t to, MutableByteSpan into) {
  while (from < to) {
    const std::uint64_t at = from % into.size();
    const std::uint64_t n = std::min(to - from, into.size() - at);
    copy_forward(into.data() + at, map.at + from, n);
    from += n;
  }
}

Status copy_records(const Map& map, const LoadPlan& plan, MutableByteSpan into) {
  const auto threads = static_cast<std::ptrdiff_t>(plan.threads);
  std::barrier together(threads);
  return in_threads(plan.threads, [&](std::size_t t) -> Status {
    for (const Record& record : plan.records) {
      const std::uint64_t share = round_up(divide_up(record.length, plan.threads), kAlignment);
      const std::uint64_t from = std::min(record.length, t * share);
      const std::uint64_t to = std::min(record.length, from + share);
      copy_share(map, record.offset + from, record.offset + to, into);
      together.arrive_and_wait();
    }
    return {};
  });
}

Status map_and_copy(const LoadPlan& plan, MutableByteSpan into, std::uint64_t* length) {
  const UniqueFd first = SL_TRY(open_file(plan.file));
  struct stat about {};
  if (::fstat(first.get(), &about) != 0) return system_error("fstat", errno);
  *length = static_cast<std::uint64_t>(about.st_size);
  Map map;
  if (plan.open_twice) {
    SL_TRY(read_at(first, 0));
    const UniqueFd second = SL_TRY(open_file(plan.file));
    SL_TRY(map_file(second, *length, &map));
    SL_TRY(read_headers(first, *length, plan.records));
  } else {
    SL_TRY(map_file(first, *length, &map));
  }
  if (!plan.records.empty()) return copy_records(map, plan, into);
  copy_share(map, 0, *length, into);
  return {};
}

Status check_copy(const LoadPlan& plan, std::uint64_t length, ByteSpan into) {
  if (into.size() < length) return {};  // only the last round of it is there
  if (plan.records.empty()) return check_stamps(plan.seed, 0, into.first(length));
  for (const Record& record : plan.records)
    SL_TRY(check_stamps(plan.seed, record.offset, into.subspan(record.offset, record.length)));
  return {};
}

std::uint64_t faults_so_far() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_minflt + usage.ru_majflt);
}

/// What a child tells its parent through a pipe; short enough to be written at once.
struct Report {
  Visit seen;
  Errc code = Errc::ok;
  char problem[256] = {};
};
static_assert(sizeof(Report) <= 512);

Status load_once(const LoadPlan& plan, int start, Visit* seen) {
  char go = 0;
  const Memory room = SL_TRY(Memory::of(16_MiB));
  if (::read(start, &go, 1) < 0) return system_error("read", errno);
  const std::uint64_t before = faults_so_far();
  seen->bytes_per_second = SL_TRY(load_mapped(plan, room.span()));
  seen->page_faults = faults_so_far() - before;
  struct stat about {};
  if (::stat(plan.file.c_str(), &about) != 0) return system_error("stat", errno);
  seen->bytes = static_cast<std::uint64_t>(about.st_size);
  return {};
}

[[noreturn]] void visit(const LoadPlan& plan, int start, int result) {
  Report report;
  const Status status = load_once(plan, start, &report.seen);
  report.code = status.code();
  status.text().copy(report.problem, sizeof report.problem - 1);
  ::_exit(::write(result, &report, sizeof report) == sizeof report ? 0 : 1);
}

}  // namespace

std::vector<Record> transformer_records(std::uint64_t length) {
  const std::uint64_t layer = length / (kLayers + 2);
  std::vector<std::uint64_t> lengths{layer};  // the embedding
  for (std::size_t i = 0; i < kLayers; ++i)
    for (const std::uint64_t share : kShares) lengths.push_back(layer / 1000 * share);
  lengths.push_back(layer);  // the head
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [](std::size_t n) { return std::to_string(n); });
  std::vector<Record> records(lengths.size());
  std::uint64_t at = kHeader;
  for (const std::size_t n : order) {
    records[n] = {at, round_down(lengths[n], kAlignment)};
    at = round_up(at + records[n].length, kAlignment) + kAlignment;
  }
  return records;
}

std::uint64_t end_of(const std::vector<Record>& records) {
  std::uint64_t end = 0;
  for (const Record& record : records) end = std::max(end, record.offset + record.length);
  return end;
}

Result<double> load_mapped(const LoadPlan& plan, MutableByteSpan into) {
  std::uint64_t length = 0;
  const Result<double> seconds = timed([&] { return map_and_copy(plan, into, &length); });
  if (seconds.ok()) SL_TRY(check_copy(plan, length, into));
  return per_second(static_cast<double>(length), seconds);
}

Result<double> load_read(const LoadPlan& plan, MutableByteSpan into) {
  std::uint64_t length = 0;
  const Result<double> seconds = timed([&]() -> Status {
    const UniqueFd fd = SL_TRY(open_file(plan.file));
    for (;;) {
      const std::uint64_t at = length % into.size();
      const ssize_t n = ::read(fd.get(), into.data() + at, std::min(4_MiB, into.size() - at));
      if (n < 0) return system_error("read", errno);
      if (n == 0) return {};
      length += static_cast<std::uint64_t>(n);
    }
  });
  if (seconds.ok()) SL_TRY(check_copy(plan, length, into));
  return per_second(static_cast<double>(length), seconds);
}

Result<std::vector<Visit>> load_in_processes(const LoadPlan& plan, std::size_t processes) {
  int start[2], result[2];
  if (::pipe2(start, O_CLOEXEC) != 0) return system_error("pipe", errno);
  const UniqueFd start_read(start[0]);
  UniqueFd start_write(start[1]);
  if (::pipe2(result, O_CLOEXEC) != 0) return system_error("pipe", errno);
  const UniqueFd result_read(result[0]);
  UniqueFd result_write(result[1]);
  std::vector<pid_t> children;
  for (std::size_t i = 0; i < processes; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      start_write.reset();  // else it would wait for itself
      visit(plan, start_read.get(), result_write.get());
    }
    if (pid > 0) children.push_back(pid);
  }
  result_write.reset();
  start_write.reset();  // all of them start now
  std::vector<Visit> visits;
  Status failed;
  for (Report one; ::read(result_read.get(), &one, sizeof one) == sizeof one;) {
    if (one.code != Errc::ok) failed = Status(one.code, one.problem);
    visits.push_back(one.seen);
  }
  int worst = 0;
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    worst = std::max(worst, status);
  }
  if (!failed.ok()) return failed;
  if (visits.size() != processes)
    return Status(Errc::io, "a process that loaded " + plan.file.string() + " died of signal " +
                                std::to_string(WTERMSIG(worst)));
  return visits;
}

}  // namespace starlane::cli::bench
