// The Vfs: what the kernel asks, answered from views, names and handles, and by the metadata
// service where they do not know. Any thread; no lock is held over a call. Its methods lie in one
// file a noun: lookup, attributes, entries, opens, bytes, space, locks, directories, xattrs,
// and kernel_tree, which lets the kernel serve a published tree by itself.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/erofs/images.h"
#include "client/handles/directory_handle.h"
#include "client/handles/handles.h"
#include "client/handles/holes.h"
#include "client/handles/open_files.h"
#include "client/incarnations.h"
#include "client/locks/held_locks.h"
#include "client/locks/lock_queue.h"
#include "client/mount.h"
#include "client/mount/relooks.h"
#include "client/names/flights.h"
#include "client/names/name_cache.h"
#include "client/names/nodes.h"
#include "client/session/sessions.h"
#include "client/takeover/ledger.h"
#include "client/vfs.h"
#include "client/views/catalogue.h"
#include "client/views/own_tree.h"
#include "client/views/views.h"
#include "client/write/replay.h"
#include "common/thread_pool.h"

namespace starlane::client {

class MountCore final : public Vfs, private SessionListener {
 public:
  MountCore(Sessions& sessions, FileIo& io, Incarnations& incarnations,
            const MountOptions& options);
  ~MountCore() override;

  void start(KernelNotifier* notifier, const KernelFeatures& features) override;
  Status stop() override;
  void interrupt(std::uint64_t unique) override;
  std::uint64_t left_by(std::uint64_t unique) override;
  void answered(std::uint64_t unique) override;

  Result<EntryReply> lookup(const Caller&, Node parent, std::string_view name) override;
  void forget(Node node, std::uint64_t lookups) override;
  Result<AttributesReply> get_attributes(const Caller&, Node node,
                                         std::optional<std::uint64_t> handle) override;
  Result<AttributesReply> set_attributes(const Caller&, Node node, const SetStat& change) override;
  Result<std::string> read_link(const Caller&, Node node) override;

  Result<EntryReply> make_node(const Caller&, Node parent, std::string_view name,
                               std::uint32_t mode, std::uint32_t rdev) override;
  Result<EntryReply> make_directory(const Caller&, Node parent, std::string_view name,
                                    std::uint32_t mode) override;
  Result<EntryReply> make_symlink(const Caller&, Node parent, std::string_view name,
                                  std::string_view target) override;
  Result<EntryReply> link(const Caller&, Node node, Node parent, std::string_view name) override;
  Status unlink(const Caller&, Node parent, std::string_view name) override;
  Status remove_directory(const Caller&, Node parent, std::string_view name) override;
  Status rename(const Caller&, Node parent, std::string_view name, Node new_parent,
                std::string_view new_name, std::uint32_t flags) override;

  Result<OpenReply> open(const Caller&, Node node, std::uint32_t flags) override;
  Result<Created> create(const Caller&, Node parent, std::string_view name, std::uint32_t mode,
                         std::uint32_t flags) override;
  Result<Created> create_unnamed(const Caller&, Node directory, std::uint32_t mode,
                                 std::uint32_t flags) override;
  Result<std::uint64_t> read_into(const Caller&, std::uint64_t handle, std::uint64_t offset,
                                  MutableByteSpan out) override;
  Result<std::vector<Piece>> read(const Caller&, std::uint64_t handle, std::uint64_t offset,
                                  std::uint32_t length) override;
  Result<std::uint32_t> write(const Caller&, std::uint64_t handle, std::uint64_t offset,
                              ByteSpan bytes, const WriteOptions& options) override;
  Status flush(const Caller&, std::uint64_t handle, std::uint64_t owner) override;
  Status fsync(const Caller&, std::uint64_t handle, bool data_only) override;
  void release(const Caller&, std::uint64_t handle) override;
  Status fallocate(const Caller&, std::uint64_t handle, std::uint32_t mode, std::uint64_t offset,
                   std::uint64_t length) override;
  Result<std::uint64_t> copy_range(const Caller&, const CopyRange& range) override;
  Result<std::uint64_t> seek(const Caller&, std::uint64_t handle, std::uint64_t offset,
                             int whence) override;

  Result<FileLock> test_lock(const Caller&, Node node, const LockRequest& request) override;
  Status set_lock(const Caller&, Node node, const LockRequest& request) override;
  void await_lock(const Caller&, Node node, const LockRequest& request, LockDone done) override;

  Result<std::uint64_t> open_directory(const Caller&, Node node) override;
  Status read_directory(const Caller&, std::uint64_t handle, std::uint64_t cookie,
                        bool with_attributes, DirectoryFiller& filler) override;
  Status fsync_directory(const Caller&, std::uint64_t handle) override;
  void release_directory(std::uint64_t handle) override;

  Result<std::string> get_xattr(const Caller&, Node node, std::string_view name) override;
  Result<std::vector<std::string>> list_xattrs(const Caller&, Node node) override;
  Status set_xattr(const Caller&, Node node, std::string_view name, std::string_view value,
                   const SetXattr& options) override;
  Status remove_xattr(const Caller&, Node node, std::string_view name) override;

  Result<std::uint32_t> get_flags(const Caller&, Node node) override;
  Status set_flags(const Caller&, Node node, std::uint32_t flags) override;

  Result<StatFs> stat_fs(const Caller&, Node node) override;
  std::string path_of(Node node) override;

 private:
  /// A name and its file's attributes, as believed or as just asked. Inode 0: there is no such
  /// name.
  struct Found {
    Attributes attributes;
    Nanoseconds valid{0};
  };

  // ---- SessionListener ----
  std::vector<FileKey> held_unlinked() override;
  void unlinked(FileKey file) override;
  Status recall(BranchId branch) override;
  void gone(BranchId branch) override;
  void escrow_wanted(BranchId branch) override;

  // ---- Calls (core.cc) ----
  /// On a branch, under its present attachment; asked again under the next one when it was fenced.
  /// request: see Requests.
  template <typename Request, typename Reply>
  Status call(const View& view, Status (MetaService::*method)(const Call&, const Request&, Reply*),
              Request& request, Reply* reply, std::uint64_t unique, std::uint64_t number = 0);
  Status meta_flush(const Caller& caller);
  void committed(FileKey file, const Attributes& now, std::uint64_t previous);
  void later(std::function<void(KernelNotifier&)> notice);
  Nanoseconds now() const { return sessions_.clock().boot(); }
  bool exclusive(const View& view) const {
    return view.attached->exclusive_since(now()).has_value();
  }
  /// The view of a node that may be changed: not_permitted in the mount's own tree, read_only in
  /// images.
  Result<View*> changeable(Node node);

  // ---- Lookup (lookup.cc) ----
  Result<EntryReply> lookup_own(const Caller& caller, InodeId directory, std::string_view name);
  Result<EntryReply> own_entry(const Caller& caller, const OwnTree::Entry& entry);
  Result<EntryReply> root_entry(const Caller& caller, const CatalogueItem& item);
  Result<Found> find(View& view, InodeId directory, std::string_view name, std::uint64_t unique);
  Result<Found> ask_name(View& view, InodeId directory, const std::string& name,
                         std::uint64_t unique, const NameCache::Question& question);
  std::optional<Found> known_name(View& view, InodeId directory, std::string_view name);
  EntryReply entry_reply(View& view, InodeId directory, std::string_view name,
                         const Attributes& attributes, Nanoseconds valid);
  EntryReply absent_reply(View& view, Nanoseconds valid);
  std::uint8_t incarnation_of(const View& view, const Attributes& attributes);

  // ---- Attributes (attributes.cc) ----
  Result<Believed<Attributes>> fetch(View& view, InodeId inode, std::uint64_t unique);
  AttributesReply attributes_reply(View& view, Node node, const Attributes& attributes,
                                   Nanoseconds valid);
  /// The server's word on a file: what the kernel, FileIo and the node cache hold of another
  /// version is dropped.
  void heard_of(View& view, const Attributes& attributes);
  Result<Attributes> set_length(View& view, const Caller& caller, OpenFile& file,
                                const SetStat& change);
  Result<Attributes> send_attributes(View& view, const Caller& caller, InodeId inode,
                                     const SetStat& change);
  std::optional<Attributes> put_off(View& view, FileKey file, const SetStat& asked);
  /// Before a change whose outcome depends on what was put off.
  void send_put_off(FileKey file);
  /// After a change of content that the server made by itself.
  void content_changed(View& view, OpenFile& file, std::uint64_t previous, const Attributes& now);

  // ---- Entries (entries.cc) ----
  std::optional<Attributes> known_alone(View& view, InodeId directory);
  template <typename Request>
  Result<Attributes> create_entry(
      View& view, const Caller& caller, InodeId directory, std::string_view name,
      Status (MetaService::*method)(const Call&, const Request&, pb::NewEntry*), Request& request);
  Result<Attributes> create_kind(View& view, const Caller& caller, InodeId directory,
                                 std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                                 std::string_view target);
  std::shared_ptr<OpenFile> guess(View& view, InodeId directory, std::string_view name,
                                  std::uint64_t unique);
  void after_unlink(View& view, InodeId inode, std::uint32_t links_left);

  // ---- Opens (opens.cc) ----
  Result<Attributes> gate(View& view, Node node, std::uint32_t flags, const Caller& caller,
                          bool check_name);
  Result<Attributes> gate_call(View& view, Node node, std::uint32_t flags, const Caller& caller,
                               bool check_name);
  Result<OpenReply> open_counted(View& view, Node node, std::uint32_t flags, const Caller& caller,
                                 const std::shared_ptr<OpenFile>& file, bool again);
  Result<OpenReply> serve(View& view, Node node, std::uint32_t flags, const Caller& caller,
                          const std::shared_ptr<OpenFile>& file, const Attributes& attributes,
                          bool again);
  Result<Created> open_created(View& view, const Caller& caller, const EntryReply& entry,
                               std::uint32_t flags, const Attributes& made);
  Result<Created> create_by_opening(const Caller& caller, Node parent, std::string_view name,
                                    std::uint32_t flags);
  /// False: the kernel's pages are of another version. Tells it so.
  bool sync_kernel(View& view, Node node, const Attributes& attributes);
  void close_counted(OpenFile& file, bool writer);

  // ---- Bytes (bytes.cc) ----
  Status write_here(FileHandle& handle, const FileIo::Write& request);
  Result<std::uint64_t> append(FileHandle& handle, FileIo::Write request,
                               const WriteOptions& options);
  Status drop_privileges(const Caller& caller, FileHandle& handle);
  Status drop_capabilities(const Caller& caller, FileHandle& handle);
  void overwritten(FileHandle& handle, std::uint64_t kernel_offset, std::uint64_t offset,
                   std::uint64_t length);
  Status settle(const Caller& caller, FileHandle& handle);

  // ---- Space (space.cc) ----
  Result<std::uint64_t> ask_copy(FileHandle& from, FileHandle& to, const CopyRange& range,
                                 const Caller& caller);
  /// What was written through shared maps lies in the kernel's pages: it comes as writes now.
  void fetch_mapped(const View& view, OpenFile& file);
  Result<std::uint64_t> seek_in_map(FileHandle& handle, std::uint64_t offset, HoleSearch::For what,
                                    std::uint64_t unique);
  Result<StatFs> stat_site(const Caller& caller);

  // ---- Locks (locks.cc) ----
  Status ask_lock(const std::shared_ptr<FileHandle>& handle, const HeldLocks::Key& key,
                  const LockRequest& request, const Caller& caller, bool waits);
  Status unlock(const std::shared_ptr<FileHandle>& handle, const HeldLocks::Key& key,
                const LockRequest& request, const Caller& caller);
  Status send_unlock(FileHandle& handle, const LockRequest& request, const Caller& caller);
  /// All that the owner has of the kind; what cannot be told to the server ends with the session.
  void unlock_all(const Caller& caller, const std::shared_ptr<FileHandle>& handle,
                  const HeldLocks::Key& key);
  void stop_waiting(std::uint64_t owner, std::uint64_t number);
  void revalidate(FileHandle& handle, const Attributes& attributes);

  // ---- Directories (directories.cc) ----
  Result<pb::ReadDirectoryReply> ask_page(View& view, InodeId directory, const std::string& after,
                                          bool with_attributes, std::uint64_t unique);
  Result<ListedPage> list_view(DirectoryHandle& handle, const std::string& after,
                               bool with_attributes, std::uint64_t unique);
  Result<ListedPage> list_own(DirectoryHandle& handle, std::uint64_t unique);
  bool add_name(DirectoryHandle& handle, const ListedName& name, std::uint64_t next,
                bool with_attributes, DirectoryFiller& filler);
  Result<bool> add_dots(DirectoryHandle& handle, std::uint64_t cookie, bool with_attributes,
                        std::uint64_t unique, DirectoryFiller& filler);

  // ---- Trees that the kernel mounts (kernel_tree.cc) ----
  static bool is_tree_file(Node node);
  static bool is_tree_handle(std::uint64_t handle);
  static std::uint16_t slot_of_tree(std::uint64_t handle);
  /// Inode 0: no such file.
  Result<EntryReply> lookup_tree_file(const Caller& caller, InodeId directory,
                                      std::string_view name, const Listing& listing);
  Result<AttributesReply> tree_file_attributes(const Caller& caller, Node node);
  Result<OpenReply> open_tree_file(const Caller& caller, Node node, std::uint32_t flags);
  Result<std::vector<Piece>> read_tree_file(const Caller& caller, std::uint64_t handle,
                                            std::uint64_t offset, std::uint32_t length);
  Result<erofs::Images::Made> tree_image(View& view, erofs::Images::Keep keep,
                                         const Caller& caller);
  Result<erofs::Images::Made> read_tree(View& view, const Caller& caller, std::uint64_t most_bytes);
  Status read_rest(View& view, const Caller& caller, const Attributes& attributes,
                   erofs::TreeNode& node);

  // ---- From one daemon to the next (takeover.cc) ----
  bool taken_over() const { return options_.ledger != nullptr && options_.ledger->taken_over(); }
  template <typename Record>
  void note(const Ledger::Key& key, const Record& record) {
    if (options_.ledger != nullptr) options_.ledger->note_plain(key, record);
  }
  void strike(const Ledger::Key& key);
  void note_file(std::uint64_t id, const FileHandle& handle, std::uint64_t unique);
  void note_directory(std::uint64_t id, DirectoryHandle& handle, std::uint64_t unique);
  void mark_unlinked(OpenFile& file, bool unlinked);
  std::optional<std::uint64_t> append_noted(std::uint64_t unique);
  void note_append(std::uint64_t unique, std::uint64_t offset);
  Result<FileState> state_of(FileHandle& handle, std::uint64_t unique);
  void take_over();
  void restore_files();
  void restore_directories();
  void restore_unlinked();
  void restore_locks();
  void restore_losses();
  void restore_set(const std::vector<BranchId>& broken);
  void replay(const std::vector<BranchId>& broken);
  Status replay_extent(const ReplayedExtent& extent, const std::vector<BranchId>& broken);

  // ---- Extended attributes (xattrs.cc) ----
  Result<NameCache::Xattrs> xattr_names(View& view, InodeId inode, std::uint64_t unique);

  Sessions& sessions_;
  FileIo& io_;
  Incarnations& incarnations_;
  const MountOptions options_;
  KernelNotifier* notifier_ = nullptr;  // set before the first request

  NameCache names_;
  Nodes nodes_;
  OwnTree own_;
  Views views_;
  Catalogue catalogue_;
  Flights<NameKey, Found> lookups_;
  Relooks relooks_;
  OpenFiles open_files_;
  erofs::Images images_;
  HandleTable<FileHandle> files_;
  HandleTable<DirectoryHandle> directories_;
  HeldLocks held_locks_;
  LockQueue lock_queue_;
  // By the request that made them, whose answer the kernel may not have got; filled before the
  // first request.
  std::unordered_map<std::uint64_t, std::uint64_t> files_left_;
  std::unordered_map<std::uint64_t, std::uint64_t> directories_left_;
  std::unique_ptr<ThreadPool>
      notices_;  // what may not be told to the kernel from the handler of a request
};

}  // namespace starlane::client
