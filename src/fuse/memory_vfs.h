// A whole file system in memory: what the mount's tests run on, and the server that "answers from
// memory and does nothing else" against which the real one is measured. Nothing is kept. Any
// thread.
#pragma once
#include <map>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "client/vfs.h"
#include "common/mutex.h"

namespace starlane::fuse {

class MemoryVfs final : public client::Vfs {
 public:
  struct Options {
    Nanoseconds valid = std::chrono::seconds(1);  // of names and attributes
    bool keep_cache = true;                       // pages of earlier opens stay
  };
  explicit MemoryVfs(const Options& options);
  ~MemoryVfs() override;

  /// How opens of a file are answered from now on. backing_fd is borrowed.
  struct OpenPolicy {
    client::OpenMode mode = client::OpenMode::cached;
    int backing_fd = -1;
  };
  /// A read-only file in the root whose bytes lie in memory that `hold` keeps.
  InodeId add_file(const std::string& name, ByteSpan bytes, std::shared_ptr<const void> hold);
  void set_open_policy(InodeId inode, const OpenPolicy& policy);

  void start(client::KernelNotifier*, const client::KernelFeatures&) override {}
  Status stop() override { return {}; }
  void interrupt(std::uint64_t) override {}

  Result<client::EntryReply> lookup(const client::Caller&, client::Node parent,
                                    std::string_view name) override;
  void forget(client::Node node, std::uint64_t lookups) override;
  Result<client::AttributesReply> get_attributes(const client::Caller&, client::Node node,
                                                 std::optional<std::uint64_t> handle) override;
  Result<client::AttributesReply> set_attributes(const client::Caller&, client::Node node,
                                                 const client::SetStat& change) override;
  Result<std::string> read_link(const client::Caller&, client::Node node) override;

  Result<client::EntryReply> make_node(const client::Caller&, client::Node parent,
                                       std::string_view name, std::uint32_t mode,
                                       std::uint32_t rdev) override;
  Result<client::EntryReply> make_directory(const client::Caller&, client::Node parent,
                                            std::string_view name, std::uint32_t mode) override;
  Result<client::EntryReply> make_symlink(const client::Caller&, client::Node parent,
                                          std::string_view name, std::string_view target) override;
  Result<client::EntryReply> link(const client::Caller&, client::Node node, client::Node parent,
                                  std::string_view name) override;
  Status unlink(const client::Caller&, client::Node parent, std::string_view name) override;
  Status remove_directory(const client::Caller&, client::Node parent,
                          std::string_view name) override;
  Status rename(const client::Caller&, client::Node parent, std::string_view name,
                client::Node new_parent, std::string_view new_name, std::uint32_t flags) override;

  Result<client::OpenReply> open(const client::Caller&, client::Node node,
                                 std::uint32_t flags) override;
  Result<Created> create(const client::Caller&, client::Node parent, std::string_view name,
                         std::uint32_t mode, std::uint32_t flags) override;
  Result<std::vector<client::Piece>> read(const client::Caller&, std::uint64_t handle,
                                          std::uint64_t offset, std::uint32_t length) override;
  Result<std::uint32_t> write(const client::Caller&, std::uint64_t handle, std::uint64_t offset,
                              ByteSpan bytes, const client::WriteOptions& options) override;
  Status flush(const client::Caller&, std::uint64_t, std::uint64_t) override { return {}; }
  Status fsync(const client::Caller&, std::uint64_t, bool) override { return {}; }
  void release(const client::Caller&, std::uint64_t handle) override;
  Status fallocate(const client::Caller&, std::uint64_t handle, std::uint32_t mode,
                   std::uint64_t offset, std::uint64_t length) override;
  Result<std::uint64_t> copy_range(const client::Caller&, const client::CopyRange& range) override;
  Result<std::uint64_t> seek(const client::Caller&, std::uint64_t handle, std::uint64_t offset,
                             int whence) override;

  // Nobody else could have any: it keeps none.
  Result<client::FileLock> test_lock(const client::Caller&, client::Node,
                                     const client::LockRequest&) override {
    return client::FileLock{};
  }
  Status set_lock(const client::Caller&, client::Node, const client::LockRequest&) override {
    return {Errc::no_locks, "this file system keeps no locks"};
  }
  void await_lock(const client::Caller& caller, client::Node node,
                  const client::LockRequest& request, LockDone done) override {
    done(set_lock(caller, node, request));
  }

  Result<std::uint64_t> open_directory(const client::Caller&, client::Node node) override;
  Status read_directory(const client::Caller&, std::uint64_t handle, std::uint64_t cookie,
                        bool with_attributes, client::DirectoryFiller& filler) override;
  Status fsync_directory(const client::Caller&, std::uint64_t) override { return {}; }
  void release_directory(std::uint64_t handle) override { release({}, handle); }

  Result<std::string> get_xattr(const client::Caller&, client::Node node,
                                std::string_view name) override;
  Result<std::vector<std::string>> list_xattrs(const client::Caller&, client::Node node) override;
  Status set_xattr(const client::Caller&, client::Node node, std::string_view name,
                   std::string_view value, const SetXattr& options) override;
  Status remove_xattr(const client::Caller&, client::Node node, std::string_view name) override;
  Result<client::StatFs> stat_fs(const client::Caller&, client::Node node) override;

 private:
  struct Inode;
  using InodePointer = std::shared_ptr<Inode>;
  struct Handle;

  Result<InodePointer> find(client::Node node) const SL_REQUIRES(m_);
  Result<InodePointer> find_directory(client::Node node) const SL_REQUIRES(m_);
  Result<InodePointer> child(client::Node parent, std::string_view name) const SL_REQUIRES(m_);
  std::shared_ptr<Handle> handle_of(std::uint64_t handle) const SL_EXCLUDES(m_);
  Result<InodePointer> make(const client::Caller&, client::Node parent, std::string_view name,
                            std::uint32_t mode) SL_REQUIRES(m_);
  std::uint64_t add_handle(const InodePointer& inode) SL_REQUIRES(m_);
  void drop_if_unused(const InodePointer& inode) SL_REQUIRES(m_);
  client::EntryReply entry(const InodePointer& inode) SL_REQUIRES(m_);
  client::EntryReply describe(const InodePointer& inode) const;
  Status replace_target(const InodePointer& moved, const InodePointer& parent,
                        std::string_view name) SL_REQUIRES(m_);

  const Options options_;
  mutable Mutex m_;  // the tree; before an inode's own lock, which guards its bytes and attributes
  std::unordered_map<std::uint64_t, InodePointer> inodes_ SL_GUARDED_BY(m_);
  std::unordered_map<std::uint64_t, std::shared_ptr<Handle>> handles_ SL_GUARDED_BY(m_);
  std::uint64_t next_inode_ SL_GUARDED_BY(m_) = 2;
  std::uint64_t next_handle_ SL_GUARDED_BY(m_) = 1;
};

}  // namespace starlane::fuse
