// What the tests over a real mount share: a directory to mount on, a Vfs that hands on, children,
// whole files.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "client/vfs.h"
#include "common/rng.h"
#include "fuse/session.h"

namespace starlane::fuse {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/tmp/starlane-fuse-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~TemporaryDirectory() { ::rmdir(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Hands on to a memory file system; a test may make it behave otherwise.
class ProbedVfs : public client::Vfs {
 public:
  explicit ProbedVfs(client::Vfs& under) : under_(under) {}
  void start(client::KernelNotifier* n, const client::KernelFeatures& f) override {
    features = f;
    under_.start(n, f);
  }
  Status stop() override {
    ++stops;
    return under_.stop();
  }
  void interrupt(std::uint64_t unique) override { under_.interrupt(unique); }
  Result<client::EntryReply> lookup(const client::Caller& c, client::Node p,
                                    std::string_view n) override {
    return under_.lookup(c, p, n);
  }
  void forget(client::Node n, std::uint64_t l) override { under_.forget(n, l); }
  Result<client::AttributesReply> get_attributes(const client::Caller& c, client::Node n,
                                                 std::optional<std::uint64_t> h) override {
    return under_.get_attributes(c, n, h);
  }
  Result<client::AttributesReply> set_attributes(const client::Caller& c, client::Node n,
                                                 const client::SetStat& s) override {
    return under_.set_attributes(c, n, s);
  }
  Result<std::string> read_link(const client::Caller& c, client::Node n) override {
    return under_.read_link(c, n);
  }
  Result<client::EntryReply> make_node(const client::Caller& c, client::Node p, std::string_view n,
                                       std::uint32_t m, std::uint32_t r) override {
    return under_.make_node(c, p, n, m, r);
  }
  Result<client::EntryReply> make_directory(const client::Caller& c, client::Node p,
                                            std::string_view n, std::uint32_t m) override {
    return under_.make_directory(c, p, n, m);
  }
  Result<client::EntryReply> make_symlink(const client::Caller& c, client::Node p,
                                          std::string_view n, std::string_view t) override {
    return under_.make_symlink(c, p, n, t);
  }
  Result<client::EntryReply> link(const client::Caller& c, client::Node n, client::Node p,
                                  std::string_view name) override {
    return under_.link(c, n, p, name);
  }
  Status unlink(const client::Caller& c, client::Node p, std::string_view n) override {
    return under_.unlink(c, p, n);
  }
  Status remove_directory(const client::Caller& c, client::Node p, std::string_view n) override {
    return under_.remove_directory(c, p, n);
  }
  Status rename(const client::Caller& c, client::Node p, std::string_view n, client::Node q,
                std::string_view m, std::uint32_t f) override {
    return under_.rename(c, p, n, q, m, f);
  }
  Result<client::OpenReply> open(const client::Caller& c, client::Node n,
                                 std::uint32_t f) override {
    return under_.open(c, n, f);
  }
  Result<Created> create(const client::Caller& c, client::Node p, std::string_view n,
                         std::uint32_t m, std::uint32_t f) override {
    return under_.create(c, p, n, m, f);
  }
  Result<std::vector<client::Piece>> read(const client::Caller& c, std::uint64_t h, std::uint64_t o,
                                          std::uint32_t l) override {
    return under_.read(c, h, o, l);
  }
  Result<std::uint32_t> write(const client::Caller& c, std::uint64_t h, std::uint64_t o, ByteSpan b,
                              const client::WriteOptions& w) override {
    return under_.write(c, h, o, b, w);
  }
  Status flush(const client::Caller& c, std::uint64_t h, std::uint64_t owner) override {
    return under_.flush(c, h, owner);
  }
  Status fsync(const client::Caller& c, std::uint64_t h, bool d) override {
    return under_.fsync(c, h, d);
  }
  void release(const client::Caller& c, std::uint64_t h) override { under_.release(c, h); }
  Status fallocate(const client::Caller& c, std::uint64_t h, std::uint32_t m, std::uint64_t o,
                   std::uint64_t l) override {
    return under_.fallocate(c, h, m, o, l);
  }
  Result<std::uint64_t> copy_range(const client::Caller& c, const client::CopyRange& r) override {
    ++copies;
    return under_.copy_range(c, r);
  }
  Result<std::uint64_t> seek(const client::Caller& c, std::uint64_t h, std::uint64_t o,
                             int w) override {
    return under_.seek(c, h, o, w);
  }
  Result<client::FileLock> test_lock(const client::Caller& c, client::Node n,
                                     const client::LockRequest& l) override {
    return under_.test_lock(c, n, l);
  }
  Status set_lock(const client::Caller& c, client::Node n, const client::LockRequest& l) override {
    return under_.set_lock(c, n, l);
  }
  void await_lock(const client::Caller& c, client::Node n, const client::LockRequest& l,
                  LockDone done) override {
    under_.await_lock(c, n, l, std::move(done));
  }
  Result<std::uint64_t> open_directory(const client::Caller& c, client::Node n) override {
    return under_.open_directory(c, n);
  }
  Status read_directory(const client::Caller& c, std::uint64_t h, std::uint64_t k, bool a,
                        client::DirectoryFiller& f) override {
    return under_.read_directory(c, h, k, a, f);
  }
  Status fsync_directory(const client::Caller& c, std::uint64_t h) override {
    return under_.fsync_directory(c, h);
  }
  void release_directory(std::uint64_t h) override { under_.release_directory(h); }
  Result<std::string> get_xattr(const client::Caller& c, client::Node n,
                                std::string_view name) override {
    ++xattr_gets;
    return under_.get_xattr(c, n, name);
  }
  Result<std::vector<std::string>> list_xattrs(const client::Caller& c, client::Node n) override {
    return under_.list_xattrs(c, n);
  }
  Status set_xattr(const client::Caller& c, client::Node n, std::string_view k, std::string_view v,
                   const SetXattr& f) override {
    return under_.set_xattr(c, n, k, v, f);
  }
  Status remove_xattr(const client::Caller& c, client::Node n, std::string_view k) override {
    return under_.remove_xattr(c, n, k);
  }
  Result<client::StatFs> stat_fs(const client::Caller& c, client::Node n) override {
    return under_.stat_fs(c, n);
  }

  client::KernelFeatures features;
  std::atomic<int> stops{0}, copies{0}, xattr_gets{0};

 protected:
  client::Vfs& under_;
};

inline std::string random_bytes(Rng& rng, std::size_t length) {
  std::string bytes(length, '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng.next());
  return bytes;
}

inline std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_whole(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A child that does not exec must not keep the mount's connection alive.
inline pid_t fork_without_descriptors() {
  const pid_t child = ::fork();
  if (child == 0) ::close_range(3, ~0U, 0);
  return child;
}

// Waits for what must come; a test that hangs says nothing.
template <typename Condition>
::testing::AssertionResult comes(Condition condition) {
  for (int i = 0; i < 20'000; ++i) {
    if (condition()) return ::testing::AssertionSuccess();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return ::testing::AssertionFailure() << "did not come within 20 s";
}

inline bool can_mount() { return ::access("/dev/fuse", R_OK | W_OK) == 0 && ::geteuid() == 0; }

}  // namespace starlane::fuse
