#include "client/mount/core.h"

#include "client/mount/call.h"
#include "common/log.h"

namespace starlane::client {

std::unique_ptr<Vfs> make_mount(Sessions& sessions, FileIo& io, Incarnations& incarnations,
                                const MountOptions& options) {
  return std::make_unique<MountCore>(sessions, io, incarnations, options);
}

MountCore::MountCore(Sessions& sessions, FileIo& io, Incarnations& incarnations,
                     const MountOptions& options)
    : sessions_(sessions),
      io_(io),
      incarnations_(incarnations),
      options_(options),
      names_(sessions.clock(), options.names),
      own_(sessions.clock().wall()),
      views_(sessions, options.ledger),
      catalogue_(sessions,
                 [this](const Listing& listing) {
                   for (View* view : views_.retire(listing)) gone(view->branch());
                 }),
      images_(options.tree_names_bytes),
      files_(options.ledger == nullptr ? 0 : options.ledger->generation()),
      directories_(options.ledger == nullptr ? 0 : options.ledger->generation()),
      held_locks_(options.ledger),
      lock_queue_(sessions),
      notices_(std::make_unique<ThreadPool>(
          ThreadPool::Options{.name = "sl-notice", .threads = 1, .queue_limit = 4096})) {}

MountCore::~MountCore() {
  sessions_.listen(nullptr);
  io_.on_commit({});
}

void MountCore::start(KernelNotifier* notifier, const KernelFeatures& features) {
  notifier_ = notifier;
  incarnations_.start(notifier, features);
  io_.on_commit([this](FileKey file, const pb::Attributes& now, std::uint64_t previous) {
    committed(file, attributes_of(now), previous);
  });
  if (taken_over()) take_over();
  sessions_.listen(this);
}

Status MountCore::stop() {
  lock_queue_.stop();
  Status flushed = io_.flush_all(Safety::accepted);
  incarnations_.stop();
  sessions_.listen(nullptr);
  sessions_.close();
  notices_.reset();
  return flushed;
}

void MountCore::interrupt(std::uint64_t unique) {
  sessions_.signals().interrupt(unique);
  io_.interrupt(unique);
  incarnations_.interrupt(unique);
  lock_queue_.interrupt(unique);
}

Result<View*> MountCore::changeable(Node node) {
  if (node.slot == 0) return {Errc::not_permitted, "the mount's own directories cannot be changed"};
  View* view = SL_TRY(views_.at(node.slot));
  if (view->frozen()) return {Errc::read_only, "a published data set cannot be changed"};
  return view;
}

Status MountCore::meta_flush(const Caller& caller) {
  pb::FlushRequest request;
  request.set_session(sessions_.id().value);
  Call header;
  header.session = SessionId(request.session());
  pb::Empty reply;
  Status status =
      sessions_.retry().call(&MetaService::flush, header, request, &reply, caller.unique);
  // What was committed under a session that has ended since stays committed: a flush by the next
  // one covers it.
  if (status.code() != Errc::fenced) return status;
  return sessions_.retry().call(&MetaService::flush, Call{}, pb::FlushRequest(), &reply,
                                caller.unique);
}

void MountCore::later(std::function<void(KernelNotifier&)> notice) {
  if (notifier_ == nullptr || !notices_) return;
  const Status queued =
      notices_->try_submit([this, notice = std::move(notice)] { notice(*notifier_); });
  if (!queued.ok()) SL_LOG(debug, "event=notice_dropped");  // it ends with its time to live
}

void MountCore::committed(FileKey file, const Attributes& now, std::uint64_t previous) {
  names_.committed(file, now);
  if (const auto open = open_files_.find(file)) open->learn(now.state());
  if (const View* view = views_.of(file.branch))
    nodes_.committed({view->slot, 0, file.inode}, previous, now.version);
  incarnations_.local_commit(file, previous, now.state());
}

// ---- What the server says ----

std::vector<FileKey> MountCore::held_unlinked() {
  std::vector<FileKey> held;
  for (const auto& file : open_files_.all())
    if (file->held_unlinked()) held.push_back(file->key);
  return held;
}

void MountCore::unlinked(FileKey file) {
  if (const auto open = open_files_.find(file)) mark_unlinked(*open, true);
  names_.forget_attributes(file);
}

Status MountCore::recall(BranchId branch) { return io_.flush_branch(branch, Safety::accepted); }

void MountCore::escrow_wanted(BranchId branch) { io_.return_escrow(branch); }

void MountCore::gone(BranchId branch) {
  const View* view = views_.of(branch);
  if (view == nullptr) return;
  SL_LOG(info, "event=view_gone branch={} slot={}", branch.value, view->slot);
  const AttachTarget& target = view->attached->target;
  if (target.volume.empty()) return;  // an image's name ends with its time to live
  later([name = target.volume](KernelNotifier& kernel) {
    kernel.invalidate_entry({0, 0, kVolumesInode}, name);
  });
}

}  // namespace starlane::client
