// For tests: a cluster in this process (the real metadata server over the engine in memory, block
// servers in memory) and hosts that mount it, driven by path as a kernel drives a mount: it looks
// names up, repeats once what is stale, and counts what it remembers.
#pragma once
#include <fcntl.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "client/make_file_io.h"
#include "client/mount.h"
#include "client/write/fake_services.h"
#include "common/manual_clock.h"
#include "common/mutex.h"
#include "common/rng.h"
#include "kv/mem/mem_engine.h"
#include "meta/server.h"

namespace starlane::client::testing {

/// MetaService that loses calls and answers, by seed, counts them, and lets a test come in between.
class FlakyMeta final : public MetaService {
 public:
  explicit FlakyMeta(MetaService& meta) : meta_(meta) {}

#define SL_DEFINE(number, method, Request, Reply)                                          \
  Status method(const Call& call, const pb::Request& request, pb::Reply* reply) override { \
    return run(#method, [&] { return meta_.method(call, request, reply); });               \
  }
  SL_META_METHODS(SL_DEFINE)
#undef SL_DEFINE

  /// One call in so many is lost, half of them after it was carried out; 0: none.
  void lose(std::uint64_t seed, std::uint64_t one_in) SL_EXCLUDES(m_);
  void away(bool away) { away_ = away; }
  int calls(const std::string& method) SL_EXCLUDES(m_);
  int calls() SL_EXCLUDES(m_);
  void forget_calls() SL_EXCLUDES(m_);
  /// Before the next call of this method reaches the server; once.
  void before(const std::string& method, std::function<void()> hook) SL_EXCLUDES(m_);
  /// After the server has answered the next call of this method, before the answer arrives; once.
  void after(const std::string& method, std::function<void()> hook) SL_EXCLUDES(m_);

 private:
  Status run(const std::string& method, const std::function<Status()>& call) SL_EXCLUDES(m_);

  MetaService& meta_;
  std::atomic<bool> away_{false};  // set by the test
  Mutex m_;
  Rng rng_ SL_GUARDED_BY(m_){1};
  std::uint64_t one_in_ SL_GUARDED_BY(m_) = 0;
  std::map<std::string, int> calls_ SL_GUARDED_BY(m_);
  std::map<std::string, std::function<void()>> hooks_ SL_GUARDED_BY(m_), after_ SL_GUARDED_BY(m_);
};

class Cluster {
 public:
  explicit Cluster(Milliseconds lease = Milliseconds(20'000));

  void make_volume(const std::string& name, std::uint64_t quota_bytes = 0);
  void delete_volume(const std::string& name);
  void end_session(SessionId session);  // as the server does when it was silent for too long

  ManualClock clock;
  FakeBlocks block_fake{1};
  std::shared_ptr<BlockService> blocks{&block_fake, [](BlockService*) {}};
  kv::mem::MemEngine engine;
  meta::Server server;
};

/// No large files.
class NoIncarnations final : public Incarnations {
 public:
  void start(KernelNotifier*, const KernelFeatures&) override {}
  void stop() override {}
  std::uint8_t preferred(FileKey) override { return 0; }
  Result<OpenDecision> open(const Open&) override {
    if (move_next.exchange(false)) return OpenDecision{OpenDecision::Kind::moved, -1};
    ++opens;
    return OpenDecision{};
  }
  void release(FileKey, Node, bool) override { --opens; }
  void forget(FileKey, Node) override { ++forgotten; }
  void local_write(FileKey, std::uint64_t, ByteSpan) override {}
  void local_truncate(FileKey, std::uint64_t) override {}
  void local_zero(FileKey, std::uint64_t, std::uint64_t) override {}
  void local_commit(FileKey, std::uint64_t, const FileState&) override {}
  void remote_change(FileKey) override { ++remote_changes; }
  Status warm(FileKey, const FileState&) override { return {}; }
  Figures figures() override { return {}; }

  std::atomic<int> opens{0}, forgotten{0}, remote_changes{0};
  std::atomic<bool> move_next{false};
};

/// Remembers what it was told.
class Notices final : public KernelNotifier {
 public:
  void invalidate_inode(Node node, std::int64_t offset, std::int64_t length) override
      SL_EXCLUDES(m_);
  void invalidate_entry(Node parent, std::string_view name) override SL_EXCLUDES(m_);
  Status store(Node, std::uint64_t, ByteSpan) override { return {}; }
  int of(Node node) SL_EXCLUDES(m_);
  std::vector<std::string> entries() SL_EXCLUDES(m_);

 private:
  Mutex m_;
  std::map<std::uint64_t, int> inodes_ SL_GUARDED_BY(m_);
  std::vector<std::string> entries_ SL_GUARDED_BY(m_);
};

struct ListedEntry {
  std::string name;
  std::uint64_t ino = 0;
  std::uint32_t type = 0;
  std::uint64_t next = 0;
  std::uint64_t node = 0;  // of readdirplus
};

class Filler final : public DirectoryFiller {
 public:
  explicit Filler(std::size_t room) : room_(room) {}
  bool add(std::string_view name, std::uint64_t ino, std::uint32_t type, std::uint64_t next_cookie,
           const EntryReply* entry) override;
  std::vector<ListedEntry> entries;

 private:
  const std::size_t room_;
};

class Host {
 public:
  explicit Host(Cluster& cluster, const std::string& name = "host",
                const MountOptions& options = {});
  ~Host();

  Caller caller();
  Vfs& vfs() { return *vfs_; }
  /// A heartbeat now, and what it led to.
  void beat() { (void)sessions_->beat_now(); }

  // ---- By path, from the mount's root ----
  Result<EntryReply> look(const std::string& path);
  Result<Node> walk(const std::string& path);
  Result<Stat> stat(const std::string& path);
  Result<std::uint64_t> open(const std::string& path, std::uint32_t flags);
  Result<std::uint64_t> create(const std::string& path, std::uint32_t flags = O_RDWR | O_CREAT,
                               std::uint32_t mode = 0644);
  Status close(std::uint64_t handle);
  Status mkdir(const std::string& path);
  Status unlink(const std::string& path);
  Status rmdir(const std::string& path);
  Status rename(const std::string& from, const std::string& to, std::uint32_t flags = 0);
  Status link(const std::string& from, const std::string& to);
  Status truncate(const std::string& path, std::uint64_t length);
  Result<std::uint32_t> pwrite(std::uint64_t handle, std::uint64_t offset, std::string_view bytes,
                               const WriteOptions& options = {});
  Result<std::string> pread(std::uint64_t handle, std::uint64_t offset, std::uint32_t length);
  /// open, write, close.
  Status write_file(const std::string& path, std::string_view bytes);
  Result<std::string> read_file(const std::string& path);
  Result<std::vector<ListedEntry>> list(const std::string& path, std::size_t room = 8,
                                        bool plus = false);

  OpenReply last_open;  // of this test's thread
  FlakyMeta meta;
  NoIncarnations incarnations;
  Notices notices;

 private:
  std::atomic<std::uint64_t> unique_{0};
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<FileIo> io_;
  std::unique_ptr<Vfs> vfs_;
  bool stopped_ = false;

 public:
  Sessions& sessions() { return *sessions_; }
  FileIo& io() { return *io_; }
  Status stop();
};

}  // namespace starlane::client::testing
