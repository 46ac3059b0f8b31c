#include "fuse/session.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "common/rng.h"
#include "fuse/memory_vfs.h"
#include "fuse/testing.h"

namespace starlane::fuse {
namespace {

using namespace std::chrono_literals;

// Reads of the file block until they are let go, or their application is signalled.
class BlockingVfs final : public ProbedVfs {
 public:
  using ProbedVfs::ProbedVfs;
  std::atomic<bool> blocking{true};
  std::atomic<int> blocked{0};

  Result<std::vector<client::Piece>> read(const client::Caller& c, std::uint64_t h, std::uint64_t o,
                                          std::uint32_t l) override {
    std::unique_lock lock(m_);
    ++blocked;
    while (blocking && !interrupted_.contains(c.unique)) changed_.wait_for(lock, 10ms);
    --blocked;
    if (interrupted_.erase(c.unique) > 0) return Status(Errc::interrupted, "signalled");
    lock.unlock();
    return under_.read(c, h, o, l);
  }
  void interrupt(std::uint64_t unique) override {
    const std::lock_guard lock(m_);
    interrupted_.insert(unique);
  }

 private:
  std::mutex m_;
  std::condition_variable changed_;
  std::set<std::uint64_t> interrupted_;
};

// Locks that are waited for are granted, or given up, when the test says so.
class WaitingLocksVfs final : public ProbedVfs {
 public:
  using ProbedVfs::ProbedVfs;

  Status set_lock(const client::Caller&, client::Node, const client::LockRequest& l) override {
    const std::lock_guard lock(m_);
    last_ = l;
    return next_;
  }
  Result<client::FileLock> test_lock(const client::Caller&, client::Node,
                                     const client::LockRequest& l) override {
    const std::lock_guard lock(m_);
    last_ = l;
    return conflict_;
  }
  void await_lock(const client::Caller& c, client::Node, const client::LockRequest& l,
                  LockDone done) override {
    const std::lock_guard lock(m_);
    last_ = l;
    waiting_[c.unique] = std::move(done);
  }
  void interrupt(std::uint64_t unique) override {
    answer(unique, Status(Errc::interrupted, "signalled"));
  }
  void grant_all() {
    while (waiting() > 0) answer(first(), Status());
  }
  std::size_t waiting() {
    const std::lock_guard lock(m_);
    return waiting_.size();
  }

  client::LockRequest last() {
    const std::lock_guard lock(m_);
    return last_;
  }
  void answer_next(const Status& next) {
    const std::lock_guard lock(m_);
    next_ = next;
  }
  void set_conflict(const client::FileLock& conflict) {
    const std::lock_guard lock(m_);
    conflict_ = conflict;
  }

 private:
  std::uint64_t first() {
    const std::lock_guard lock(m_);
    return waiting_.begin()->first;
  }
  void answer(std::uint64_t unique, const Status& status) {
    LockDone done;
    {
      const std::lock_guard lock(m_);
      const auto at = waiting_.find(unique);
      if (at == waiting_.end()) return;
      done = std::move(at->second);
      waiting_.erase(at);
    }
    done(status);
  }

  std::mutex m_;
  client::LockRequest last_;
  Status next_;
  client::FileLock conflict_;
  std::map<std::uint64_t, LockDone> waiting_;
};

template <typename VfsType = ProbedVfs>
struct Mounted {
  explicit Mounted(SessionOptions options = {}, MemoryVfs::Options memory_options = {})
      : memory(memory_options), vfs(memory) {
    options.mountpoint = directory.path();
    auto started = Session::start(vfs, options);
    EXPECT_TRUE(started.ok()) << started.status().to_string();
    if (started.ok()) session = std::move(started.value());
  }
  ~Mounted() {
    if (session) {
      EXPECT_TRUE(session->stop().ok());
    }
  }
  std::string path(const std::string& name) const { return directory.path() + "/" + name; }

  TemporaryDirectory directory;
  MemoryVfs memory;
  VfsType vfs;
  std::unique_ptr<Session> session;
};

constexpr MemoryVfs::Options kNoKeptPages{.keep_cache = false};

class SessionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_mount()) GTEST_SKIP() << "needs root and /dev/fuse";
  }
};

TEST_F(SessionTest, FilesKeepTheirBytes) {
  Mounted mounted;
  Rng rng(1);
  const std::string bytes = random_bytes(rng, 5'000'001);
  write_whole(mounted.path("a"), bytes);
  EXPECT_EQ(read_whole(mounted.path("a")), bytes);
  const UniqueFd file(::open(mounted.path("a").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(file);
  EXPECT_EQ(::pwrite(file.get(), "xyz", 3, 4'999'999), 3);
  EXPECT_EQ(::ftruncate(file.get(), 5'000'001), 0);
  EXPECT_EQ(read_whole(mounted.path("a")), bytes.substr(0, 4'999'999) + "xy");
}

TEST_F(SessionTest, LocksAreAskedOfTheVfs) {
  Mounted<WaitingLocksVfs> mounted;
  write_whole(mounted.path("f"), "bytes");
  const UniqueFd file(::open(mounted.path("f").c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = 10;
  lock.l_len = 5;
  EXPECT_EQ(::fcntl(file.get(), F_SETLK, &lock), 0);
  EXPECT_EQ(mounted.vfs.last().lock.kind, client::LockKind::record);
  EXPECT_EQ(mounted.vfs.last().lock.type, client::LockType::write);
  EXPECT_EQ(mounted.vfs.last().lock.start, 10u);
  EXPECT_EQ(mounted.vfs.last().lock.end, 14u);
  EXPECT_EQ(mounted.vfs.last().lock.pid, static_cast<std::uint32_t>(::getpid()));
  lock.l_len = 0;
  EXPECT_EQ(::fcntl(file.get(), F_OFD_SETLK, &(lock.l_pid = 0, lock)), 0);
  EXPECT_EQ(mounted.vfs.last().lock.end, static_cast<std::uint64_t>(INT64_MAX));
  mounted.vfs.set_conflict({client::LockKind::record, client::LockType::read, 7, 9, 0});
  EXPECT_EQ(::fcntl(file.get(), F_GETLK, &lock), 0);
  EXPECT_EQ(lock.l_type, F_RDLCK);
  EXPECT_EQ(lock.l_start, 7);
  EXPECT_EQ(lock.l_len, 3);
  for (const auto& [code, number] : std::map<Errc, int>{
           {Errc::would_block, EAGAIN}, {Errc::deadlock, EDEADLK}, {Errc::no_locks, ENOLCK}}) {
    mounted.vfs.answer_next(Status(code, "refused"));
    EXPECT_EQ(::flock(file.get(), LOCK_EX | LOCK_NB), -1);
    EXPECT_EQ(errno, number);
    EXPECT_EQ(mounted.vfs.last().lock.kind, client::LockKind::flock);
  }
}

TEST_F(SessionTest, ManyWaitForLocksWithoutAThreadEach) {
  SessionOptions options;
  options.max_threads = 4;
  Mounted<WaitingLocksVfs> mounted(options);
  write_whole(mounted.path("f"), "bytes");
  constexpr std::size_t kWaiting = 20;
  std::atomic<int> granted{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kWaiting; ++i) {
    threads.emplace_back([&] {
      const UniqueFd file(::open(mounted.path("f").c_str(), O_RDWR | O_CLOEXEC));
      if (::flock(file.get(), LOCK_EX) == 0) ++granted;
    });
  }
  while (mounted.vfs.waiting() < kWaiting) std::this_thread::yield();
  EXPECT_LE(mounted.session->figures().threads, 4u);
  EXPECT_GE(mounted.session->figures().in_flight, kWaiting);
  EXPECT_EQ(read_whole(mounted.path("f")), "bytes");  // Everything else is served.
  EXPECT_EQ(granted, 0);
  mounted.vfs.grant_all();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(granted, static_cast<int>(kWaiting));
}

TEST_F(SessionTest, ASignalEndsTheWaitForALock) {
  Mounted<WaitingLocksVfs> mounted;
  write_whole(mounted.path("f"), "bytes");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGALRM, [](int) {});
    const int file = ::open(mounted.path("f").c_str(), O_RDWR | O_CLOEXEC);
    ::_exit(::flock(file, LOCK_EX) == 0 ? 0 : 1);
  }
  while (mounted.vfs.waiting() == 0) std::this_thread::yield();
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(mounted.vfs.waiting(), 0u);
}

TEST_F(SessionTest, ModelOfRandomWritesReadsAndTruncates) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  Mounted mounted;
  const UniqueFd file(::open(mounted.path("f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  std::string model;
  for (int step = 0; step < 400; ++step) {
    const std::uint64_t offset = rng.below(3'000'000);
    if (rng.one_in(10)) {
      model.resize(offset);
      ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(offset)), 0);
    } else if (rng.one_in(2)) {
      const std::string bytes = random_bytes(rng, rng.below(200'000) + 1);
      if (model.size() < offset + bytes.size()) model.resize(offset + bytes.size());
      model.replace(offset, bytes.size(), bytes);
      ASSERT_EQ(::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)),
                static_cast<ssize_t>(bytes.size()));
    } else {
      std::string got(rng.below(300'000) + 1, '\0');
      const ssize_t n = ::pread(file.get(), got.data(), got.size(), static_cast<off_t>(offset));
      ASSERT_GE(n, 0);
      got.resize(static_cast<std::size_t>(n));
      ASSERT_EQ(got, offset < model.size() ? model.substr(offset, got.size()) : std::string());
      ASSERT_EQ(got.empty(), offset >= model.size());
    }
  }
  EXPECT_EQ(read_whole(mounted.path("f")), model);
}

TEST_F(SessionTest, DirectoriesAndNames) {
  Mounted mounted;
  ASSERT_EQ(::mkdir(mounted.path("d").c_str(), 0755), 0);
  std::set<std::string> names;
  for (int i = 0; i < 3000; ++i) {
    const std::string name =
        "a-rather-long-name-so-that-one-answer-does-not-hold-them-all-" + std::to_string(i);
    write_whole(mounted.path("d/" + name), name);
    names.insert(name);
  }
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(mounted.path("d"))) {
    EXPECT_EQ(entry.file_size(), entry.path().filename().string().size());
    EXPECT_TRUE(found.insert(entry.path().filename()).second);
  }
  EXPECT_EQ(found, names);
  EXPECT_EQ(::rmdir(mounted.path("d").c_str()), -1);
  EXPECT_EQ(errno, ENOTEMPTY);
  EXPECT_EQ(::rename(mounted.path("d").c_str(), mounted.path("e").c_str()), 0);
  EXPECT_EQ(std::filesystem::remove_all(mounted.path("e")), 3001U);
}

TEST_F(SessionTest, LinksRenameFlagsAndOpenUnlinkedFiles) {
  Mounted mounted;
  write_whole(mounted.path("a"), "one");
  write_whole(mounted.path("b"), "two");
  ASSERT_EQ(::link(mounted.path("a").c_str(), mounted.path("c").c_str()), 0);
  struct stat status {};
  ASSERT_EQ(::stat(mounted.path("c").c_str(), &status), 0);
  EXPECT_EQ(status.st_nlink, 2U);
  EXPECT_EQ(::renameat2(AT_FDCWD, mounted.path("a").c_str(), AT_FDCWD, mounted.path("b").c_str(),
                        RENAME_NOREPLACE),
            -1);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(::renameat2(AT_FDCWD, mounted.path("a").c_str(), AT_FDCWD, mounted.path("b").c_str(),
                        RENAME_EXCHANGE),
            0);
  EXPECT_EQ(read_whole(mounted.path("a")), "two");
  ASSERT_EQ(::symlink("b", mounted.path("s").c_str()), 0);
  EXPECT_EQ(read_whole(mounted.path("s")), "one");
  const UniqueFd file(::open(mounted.path("a").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::unlink(mounted.path("a").c_str()), 0);
  char bytes[4] = {};
  EXPECT_EQ(::read(file.get(), bytes, 3), 3);
  EXPECT_STREQ(bytes, "two");
  EXPECT_EQ(::mkfifo(mounted.path("p").c_str(), 0600), 0);
  ASSERT_EQ(::stat(mounted.path("p").c_str(), &status), 0);
  EXPECT_TRUE(S_ISFIFO(status.st_mode));
}

TEST_F(SessionTest, ExtendedAttributesStatfsSeekAndCopy) {
  Mounted mounted;
  write_whole(mounted.path("a"), std::string(100'000, 'x'));
  const std::string path = mounted.path("a");
  EXPECT_EQ(::setxattr(path.c_str(), "user.one", "value", 5, 0), 0);
  EXPECT_EQ(::setxattr(path.c_str(), "user.one", "value", 5, XATTR_CREATE), -1);
  EXPECT_EQ(errno, EEXIST);
  char value[16] = {};
  EXPECT_EQ(::getxattr(path.c_str(), "user.one", nullptr, 0), 5);
  EXPECT_EQ(::getxattr(path.c_str(), "user.one", value, 2), -1);
  EXPECT_EQ(errno, ERANGE);
  EXPECT_EQ(::getxattr(path.c_str(), "user.one", value, sizeof value), 5);
  EXPECT_STREQ(value, "value");
  EXPECT_EQ(::listxattr(path.c_str(), value, sizeof value), 9);
  EXPECT_EQ(::removexattr(path.c_str(), "user.one"), 0);
  EXPECT_EQ(::getxattr(path.c_str(), "user.one", value, sizeof value), -1);
  EXPECT_EQ(errno, ENODATA);
  struct statvfs figures {};
  ASSERT_EQ(::statvfs(path.c_str(), &figures), 0);
  EXPECT_EQ(figures.f_namemax, 255U);
  const UniqueFd from(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd to(::open(mounted.path("b").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  off_t in = 0, out = 10;
  EXPECT_EQ(::copy_file_range(from.get(), &in, to.get(), &out, 100'000, 0), 100'000);
  EXPECT_EQ(mounted.vfs.copies, 1);
  EXPECT_EQ(read_whole(mounted.path("b")), std::string(10, '\0') + std::string(100'000, 'x'));
  EXPECT_EQ(::lseek(from.get(), 0, SEEK_HOLE), 100'000);
  EXPECT_EQ(::posix_fallocate(to.get(), 0, 300'000), 0);
  EXPECT_EQ(::lseek(to.get(), 0, SEEK_END), 300'000);
}

TEST_F(SessionTest, SuidGoesWithAForeignWriteAndNoXattrIsAskedBefore) {
  Mounted mounted;
  write_whole(mounted.path("a"), "program");
  ASSERT_EQ(::chmod(mounted.path("a").c_str(), 06777), 0);
  const pid_t child = fork_without_descriptors();
  if (child == 0) {
    if (::setgid(12345) != 0 || ::setuid(12345) != 0) ::_exit(1);
    const int file = ::open(mounted.path("a").c_str(), O_WRONLY);
    ::_exit(::write(file, "x", 1) == 1 ? 0 : 2);
  }
  int result = 0;
  ::waitpid(child, &result, 0);
  EXPECT_EQ(result, 0);
  struct stat status {};
  ASSERT_EQ(::stat(mounted.path("a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0777U);

  const UniqueFd file(::open(mounted.path("b").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  EXPECT_EQ(::write(file.get(), "x", 1), 1);
  const int before = mounted.vfs.xattr_gets;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(::write(file.get(), "x", 1), 1);
  EXPECT_EQ(mounted.vfs.xattr_gets, before);
}

TEST_F(SessionTest, SharedAndPrivateMappings) {
  Mounted mounted;
  write_whole(mounted.path("a"), std::string(1 << 20, 'a'));
  const UniqueFd file(::open(mounted.path("a").c_str(), O_RDWR | O_CLOEXEC));
  auto* shared = static_cast<char*>(
      ::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
  ASSERT_NE(shared, MAP_FAILED);
  shared[5000] = 'b';
  EXPECT_EQ(::msync(shared, 1 << 20, MS_SYNC), 0);
  ::munmap(shared, 1 << 20);
  EXPECT_EQ(read_whole(mounted.path("a"))[5000], 'b');
}

TEST_F(SessionTest, BlockedRequestsStarveNobodyAndSignalsEndThem) {
  SessionOptions options;
  options.max_threads = 4;  // fewer than the requests that block
  options.idle_threads = 2;
  Mounted<BlockingVfs> mounted(options);
  mounted.vfs.blocking = false;
  write_whole(mounted.path("slow"), std::string(1 << 20, 's'));
  mounted.vfs.blocking = true;
  std::vector<pid_t> children;
  for (int i = 0; i < 12; ++i) {
    const pid_t child = fork_without_descriptors();
    if (child == 0) {
      const int file = ::open(mounted.path("slow").c_str(), O_RDONLY | O_DIRECT);
      alignas(4096) static char memory[4096];
      ::_exit(::pread(file, memory, sizeof memory, i * 8192) == sizeof memory ? 0 : 3);
    }
    children.push_back(child);
  }
  EXPECT_TRUE(comes([&] { return mounted.session->figures().in_flight == 12; }));
  // All threads but the one that reads are blocked; a signal still reaches a request, which ends.
  for (std::size_t i = 0; i < 6; ++i) ::kill(children[i], SIGTERM);
  for (std::size_t i = 0; i < 6; ++i) {
    int result = 0;
    ASSERT_EQ(::waitpid(children[i], &result, 0), children[i]);
    EXPECT_TRUE(WIFSIGNALED(result));
  }
  mounted.vfs.blocking = false;
  for (std::size_t i = 6; i < children.size(); ++i) {
    int result = 0;
    ASSERT_EQ(::waitpid(children[i], &result, 0), children[i]);
    EXPECT_EQ(result, 0);
  }
  EXPECT_LE(mounted.session->figures().most_threads, 4U);
}

TEST_F(SessionTest, ASignalThatIsCaughtCutsNoShortRequestShort) {
  Mounted<BlockingVfs> mounted({}, kNoKeptPages);
  mounted.vfs.blocking = false;
  write_whole(mounted.path("slow"), std::string(4096, 's'));
  mounted.vfs.blocking = true;
  const auto reader = [&] {
    const pid_t child = fork_without_descriptors();
    if (child != 0) return child;
    ::signal(SIGALRM, [](int) {});
    const itimerval often{{0, 50'000}, {0, 50'000}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
    const int file = ::open(mounted.path("slow").c_str(), O_RDONLY | O_DIRECT);
    alignas(4096) static char memory[4096];
    const bool whole = ::pread(file, memory, sizeof memory, 0) == sizeof memory;
    ::_exit(whole ? 0 : errno == EINTR ? 4 : 3);
  };
  const auto outcome = [](pid_t child) {
    int result = 0;
    EXPECT_EQ(::waitpid(child, &result, 0), child);
    return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
  };
  const pid_t soon = reader();
  EXPECT_TRUE(comes([&] { return mounted.session->figures().in_flight == 1; }));
  ::kill(soon, SIGSTOP);
  ::kill(soon, SIGCONT);
  std::this_thread::sleep_for(200ms);
  mounted.vfs.blocking = false;
  EXPECT_EQ(outcome(soon), 0);
  mounted.vfs.blocking = true;
  EXPECT_EQ(outcome(reader()), 4) << "nobody answers: after a while it counts";
}

TEST_F(SessionTest, OtherFilesAreServedWhileOneBlocks) {
  Mounted<BlockingVfs> mounted({}, kNoKeptPages);
  mounted.vfs.blocking = false;
  write_whole(mounted.path("slow"), std::string(1 << 20, 's'));
  mounted.vfs.blocking = true;
  std::vector<std::thread> readers;
  for (int i = 0; i < 40; ++i) {
    readers.emplace_back([&, i] {
      const UniqueFd file(::open(mounted.path("slow").c_str(), O_RDONLY | O_CLOEXEC));
      char byte = 0;
      EXPECT_EQ(::pread(file.get(), &byte, 1, i * 16384), 1);
    });
  }
  EXPECT_TRUE(comes([&] { return mounted.vfs.blocked > 0; }));
  write_whole(mounted.path("other"), "written meanwhile");
  struct stat status {};
  EXPECT_EQ(::stat(mounted.path("other").c_str(), &status), 0);
  EXPECT_EQ(status.st_size, 17);
  mounted.vfs.blocking = false;
  for (std::thread& reader : readers) reader.join();
}

TEST_F(SessionTest, ManyProcessesAtOnce) {
  Mounted mounted;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(static_cast<std::uint64_t>(t));
      const std::string directory = mounted.path("d" + std::to_string(t));
      ASSERT_EQ(::mkdir(directory.c_str(), 0755), 0);
      for (int i = 0; i < 100; ++i) {
        const std::string bytes = random_bytes(rng, rng.below(60'000));
        write_whole(directory + "/f", bytes);
        ASSERT_EQ(read_whole(directory + "/f"), bytes);
        ASSERT_EQ(
            ::rename((directory + "/f").c_str(), (directory + "/" + std::to_string(i)).c_str()), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(SessionTest, StopWithOpenFilesEndsTheirRequests) {
  Mounted<BlockingVfs> mounted({}, kNoKeptPages);
  mounted.vfs.blocking = false;
  write_whole(mounted.path("slow"), std::string(1 << 20, 's'));
  mounted.vfs.blocking = true;
  const UniqueFd file(::open(mounted.path("slow").c_str(), O_RDONLY | O_CLOEXEC));
  std::thread reader([&] {
    char byte = 0;
    EXPECT_EQ(::pread(file.get(), &byte, 1, 65536), -1);
  });
  EXPECT_TRUE(comes([&] { return mounted.vfs.blocked > 0; }));
  EXPECT_TRUE(mounted.session->stop().ok());
  reader.join();
  EXPECT_EQ(mounted.vfs.stops, 1);
  EXPECT_EQ(state_of_mount(mounted.directory.path()), MountState::none);
}

TEST_F(SessionTest, UnmountFromOutsideIsSeen) {
  Mounted mounted;
  EXPECT_FALSE(mounted.session->wait_unmounted(1ms));
  unmount(mounted.directory.path());
  EXPECT_TRUE(mounted.session->wait_unmounted(10s));
  EXPECT_TRUE(mounted.session->stop().ok());
  EXPECT_EQ(mounted.vfs.stops, 1);
}

TEST_F(SessionTest, LiveMountIsRefusedAndDeadOneIsCleared) {
  TemporaryDirectory directory;
  const pid_t child = fork_without_descriptors();
  if (child == 0) {
    MemoryVfs vfs({});
    SessionOptions options;
    options.mountpoint = directory.path();
    auto session = Session::start(vfs, options);
    if (!session.ok()) ::_exit(1);
    for (;;) ::pause();
  }
  EXPECT_TRUE(comes([&] { return state_of_mount(directory.path()) == MountState::live; }));
  MemoryVfs vfs({});
  SessionOptions options;
  options.mountpoint = directory.path();
  const auto refused = Session::start(vfs, options);
  EXPECT_EQ(refused.code(), Errc::busy);
  EXPECT_NE(refused.status().text().find("Starlane mount already"), std::string::npos);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(state_of_mount(directory.path()), MountState::dead);
  auto session = Session::start(vfs, options);
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  write_whole(directory.path() + "/a", "again");
  EXPECT_EQ(read_whole(directory.path() + "/a"), "again");
}

TEST_F(SessionTest, WrongMountpointsGetASentence) {
  MemoryVfs vfs({});
  TemporaryDirectory directory;
  const auto start = [&](const std::string& path) {
    SessionOptions options;
    options.mountpoint = path;
    return Session::start(vfs, options).status();
  };
  EXPECT_EQ(start(directory.path() + "/missing").code(), Errc::not_found);
  EXPECT_EQ(start(directory.path() + "/missing/deeper").code(), Errc::not_found);
  write_whole(directory.path() + "/file", "x");
  EXPECT_EQ(start(directory.path() + "/file").code(), Errc::not_directory);
  ::unlink((directory.path() + "/file").c_str());
  EXPECT_EQ(start("/").code(), Errc::invalid);
  EXPECT_EQ(start("").code(), Errc::invalid);
}

TEST_F(SessionTest, BindsShowADirectoryElsewhereAndGoWithTheMount) {
  TemporaryDirectory directory, elsewhere;
  MemoryVfs memory({});
  SessionOptions options;
  options.mountpoint = directory.path();
  {
    auto first = Session::start(memory, options);
    ASSERT_TRUE(first.ok());
    ASSERT_EQ(::mkdir((directory.path() + "/volume").c_str(), 0755), 0);
    write_whole(directory.path() + "/volume/a", "inside");
  }
  options.binds = {{"volume", elsewhere.path()}};
  auto session = Session::start(memory, options);
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  EXPECT_EQ(read_whole(elsewhere.path() + "/a"), "inside");
  EXPECT_TRUE(session.value()->stop().ok());
  EXPECT_EQ(state_of_mount(elsewhere.path()), MountState::none);
  options.binds = {{"missing", elsewhere.path()}};
  const auto failed = Session::start(memory, options);
  EXPECT_EQ(failed.code(), Errc::not_found);
  EXPECT_EQ(state_of_mount(directory.path()), MountState::none);
}

}  // namespace
}  // namespace starlane::fuse
