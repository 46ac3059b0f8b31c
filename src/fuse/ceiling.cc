#include "fuse/ceiling.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "client/node_cache/cache_mount.h"
#include "common/bytes.h"
#include "common/errno.h"
#include "common/host_size.h"
#include "fuse/memory_vfs.h"
#include "fuse/session.h"

namespace starlane::fuse {
namespace {

// The measured side runs in children without our descriptors: if this process is killed, the
// mount's connection ends and they with it; a thread of this process that waited for its own mount
// would never be gone.
using Work = std::function<bool(std::byte* buffer)>;

constexpr std::size_t kBuffer = 4_MiB;
constexpr std::size_t kProcesses = 4;

double seconds() { return std::chrono::duration<double>(system_clock().boot()).count(); }

[[noreturn]] void run_child(const Work& work, int keep) {
  if (keep > 3) ::close_range(3, static_cast<unsigned>(keep - 1), 0);
  ::close_range(static_cast<unsigned>(std::max(keep + 1, 3)), ~0U, 0);
  void* memory = ::mmap(nullptr, kBuffer, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ::_exit(memory != MAP_FAILED && work(static_cast<std::byte*>(memory)) ? 0 : 1);
}

// Wall time of all of them; 0 if one failed. keep: a descriptor that they need, or -1.
double timed(const std::vector<Work>& works, int keep) {
  const double start = seconds();
  std::vector<pid_t> children;
  for (const Work& work : works) {
    const pid_t child = ::fork();
    if (child == 0) run_child(work, keep);
    if (child > 0) children.push_back(child);
  }
  bool good = children.size() == works.size();
  for (const pid_t child : children) {
    int result = 0;
    while (::waitpid(child, &result, 0) < 0 && errno == EINTR) {
    }
    good = good && WIFEXITED(result) && WEXITSTATUS(result) == 0;
  }
  return good ? seconds() - start : 0;
}

bool read_range(int file, std::byte* buffer, std::size_t unit, std::uint64_t from,
                std::uint64_t to) {
  while (from < to) {
    const ssize_t n =
        ::pread(file, buffer, std::min<std::uint64_t>(unit, to - from), static_cast<off_t>(from));
    if (n <= 0) return false;
    from += static_cast<std::uint64_t>(n);
  }
  return true;
}

bool read_file(const std::string& path, int flags, std::byte* buffer, std::size_t unit,
               std::uint64_t length) {
  const int file = ::open(path.c_str(), O_RDONLY | flags);
  return file >= 0 && read_range(file, buffer, unit, 0, length);
}

bool copy_out(const std::string& path, std::byte* buffer, std::uint64_t length) {
  const int file = ::open(path.c_str(), O_RDONLY);
  void* map = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  if (file < 0 || map == MAP_FAILED) return false;
  for (std::uint64_t at = 0; at < length; at += kBuffer) {
    std::memcpy(buffer, static_cast<std::byte*>(map) + at,
                std::min<std::uint64_t>(kBuffer, length - at));
  }
  return true;
}

bool write_file(const std::string& path, std::byte* buffer, std::uint64_t length) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (std::uint64_t at = 0; at < length;) {
    const ssize_t n = ::write(file, buffer, std::min<std::uint64_t>(1_MiB, length - at));
    if (n <= 0) return false;
    at += static_cast<std::uint64_t>(n);
  }
  return ::close(file) == 0;
}

class ScratchDirectory {
 public:
  explicit ScratchDirectory(const std::string& parent)
      : path_(parent + "/starlane-ceiling-XXXXXX") {
    made_ = ::mkdtemp(path_.data()) != nullptr;
  }
  ~ScratchDirectory() {
    if (made_) ::rmdir(path_.c_str());
  }
  bool made() const { return made_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

// The file's bytes: huge pages behind a descriptor where this process may, else plain memory.
struct Source {
  std::unique_ptr<client::CacheMount> mount;
  std::shared_ptr<client::CacheFile> file;
  std::shared_ptr<const void> plain;
  ByteSpan bytes;
};

Result<Source> make_source(std::uint64_t length) {
  if (available_memory() / 2 < length)
    return Status(Errc::no_memory, "too little free memory to measure with");
  Source source;
  auto mount = client::CacheMount::make(length + 64_MiB);
  if (mount.ok()) {
    source.mount = std::move(mount.value());
    source.file = SL_TRY(source.mount->create(length));
    std::memset(source.file->map().data(), 1, length);
    source.bytes = source.file->map();
    return source;
  }
  void* memory =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return system_error("cannot get memory to measure with", errno);
  std::memset(memory, 1, length);
  source.plain = std::shared_ptr<const void>(
      memory, [length](const void* m) { ::munmap(const_cast<void*>(m), length); });
  source.bytes = {static_cast<const std::byte*>(memory), length};
  return source;
}

class Measurement {
 public:
  Measurement(const CeilingOptions& options, const Source& source, MemoryVfs& memory,
              const Session& session)
      : options_(options), source_(source), memory_(memory), root_(session.mountpoint()) {
    const bool passthrough = session.features().passthrough && source.file;
    add("cached", {client::OpenMode::cached, -1});
    add("direct", {client::OpenMode::direct, -1});
    if (passthrough) add("passthrough", {client::OpenMode::passthrough, source.file->backing_fd()});
    passthrough_ = passthrough;
  }

  Ceiling run() {
    const std::uint64_t n = options_.bytes;
    Ceiling c;
    c.read_cached = rate([&](std::byte* b) { return read_file(path("cached"), 0, b, 1_MiB, n); });
    c.read_cached_parallel = parallel_rate();
    c.read_direct =
        rate([&](std::byte* b) { return read_file(path("direct"), O_DIRECT, b, 4_MiB, n); });
    c.map_cached = rate([&](std::byte* b) { return copy_out(path("cached"), b, n); });
    if (passthrough_)
      c.map_passthrough = rate([&](std::byte* b) { return copy_out(path("passthrough"), b, n); });
    c.write = rate([&](std::byte* b) { return write_file(path("written"), b, n); });
    ::unlink(path("written").c_str());
    c.memory_copy = rate([&](std::byte* b) {
      for (std::uint64_t at = 0; at < n; at += kBuffer) {
        std::memcpy(b, source_.bytes.data() + at, std::min<std::uint64_t>(kBuffer, n - at));
      }
      return true;
    });
    c.seconds_per_open = open_seconds();
    return c;
  }

 private:
  std::string path(const char* name) const { return root_ + "/" + name; }
  void add(const std::string& name, const MemoryVfs::OpenPolicy& policy) {
    memory_.set_open_policy(memory_.add_file(name, source_.bytes, source_.plain), policy);
  }

  double median(const std::function<double()>& once) const {
    std::vector<double> times;
    for (int run = 0; run < options_.runs; ++run) times.push_back(once());
    std::sort(times.begin(), times.end());
    return times.empty() || times.front() <= 0 ? 0 : times[times.size() / 2];
  }
  double to_rate(double time) const {
    return time <= 0 ? 0 : static_cast<double>(options_.bytes) / time / 1e9;
  }

  double rate(const Work& work) const {
    return to_rate(median([&] { return timed({work}, -1); }));
  }
  double parallel_rate() const {
    return to_rate(median([&] {
      const UniqueFd file(::open(path("cached").c_str(), O_RDONLY | O_CLOEXEC));
      if (!file) return 0.0;
      std::vector<Work> works;
      const std::uint64_t share = options_.bytes / kProcesses;
      for (std::size_t i = 0; i < kProcesses; ++i) {
        works.push_back([&, i](std::byte* b) {
          return read_range(file.get(), b, 1_MiB, i * share, (i + 1) * share);
        });
      }
      return timed(works, file.get());
    }));
  }
  double open_seconds() const {
    constexpr int kOpens = 2000;
    return median([&] {
             return timed({[&](std::byte*) {
                            for (int i = 0; i < kOpens; ++i)
                              ::close(::open(path("cached").c_str(), O_RDONLY));
                            return true;
                          }},
                          -1);
           }) /
           kOpens;
  }

  const CeilingOptions& options_;
  const Source& source_;
  MemoryVfs& memory_;
  const std::string root_;
  bool passthrough_ = false;
};

}  // namespace

Result<Ceiling> measure_ceiling(const CeilingOptions& options) {
  if (options.bytes < kBuffer || options.runs < 1)
    return Status(Errc::invalid, "nothing to measure");
  const ScratchDirectory directory(options.scratch);
  if (!directory.made())
    return system_error("cannot make a directory in " + options.scratch, errno);
  const Source source = SL_TRY(make_source(options.bytes));
  MemoryVfs memory({.valid = std::chrono::seconds(1), .keep_cache = false});
  SessionOptions session_options;
  session_options.mountpoint = directory.path();
  session_options.max_write = options.max_write;
  session_options.read_ahead_kib = options.read_ahead_kib;
  session_options.idle_threads = options.idle_threads;
  const auto session = SL_TRY(Session::start(memory, session_options));
  const Ceiling ceiling = Measurement(options, source, memory, *session).run();
  SL_TRY(session->stop());
  return ceiling;
}

}  // namespace starlane::fuse
