// What stat shows and chmod, chown, utimens and truncate change.
#include <sys/stat.h>

#include "client/mount/call.h"

namespace starlane::client {

Result<Believed<Attributes>> MountCore::fetch(View& view, InodeId inode, std::uint64_t unique) {
  const auto known = names_.attributes(*view.attached, inode);
  (known ? options_.meters->attribute_hits : options_.meters->attribute_misses).add();
  if (known) return *known;
  const NameCache::Question question = names_.ask();
  pb::NodeRequest request;
  request.set_inode(inode.value);
  pb::Attributes reply;
  SL_TRY(node_status(call(view, &MetaService::get_attributes, request, &reply, unique)));
  const Attributes attributes = attributes_of(reply);
  names_.learn_attributes(question, view.branch(), attributes);
  heard_of(view, attributes);
  return Believed<Attributes>{attributes, names_.valid(*view.attached, question.asked_at)};
}

AttributesReply MountCore::attributes_reply(View& view, Node node, const Attributes& attributes,
                                            Nanoseconds valid) {
  if (!attributes.is_regular() || view.frozen())
    return {stat_of(view.view(), attributes, std::nullopt), valid};
  const auto dirty = io_.dirty(view.file(attributes.inode));
  if (dirty) valid = Nanoseconds::zero();  // how much it takes is known after the commit
  // Committed since `attributes` were looked up: then they are older than what is not dirty now.
  const auto newer = dirty ? std::nullopt : names_.attributes(*view.attached, attributes.inode);
  const bool overtaken = newer && newer->value.version > attributes.version;
  const Attributes& shown = overtaken ? newer->value : attributes;
  nodes_.set_shown(node, shown.version);
  return {stat_of(view.view(), shown, dirty), valid};
}

Result<AttributesReply> MountCore::get_attributes(const Caller& caller, Node node,
                                                  std::optional<std::uint64_t>) {
  if (node.slot == 0) {
    const Attributes attributes = SL_TRY(own_.attributes(node.inode));
    return AttributesReply{stat_of(kOwnView, attributes, std::nullopt), options_.names.shared_ttl};
  }
  if (is_tree_file(node)) return tree_file_attributes(caller, node);
  View* view = SL_TRY(views_.at(node.slot));
  const Believed<Attributes> believed = SL_TRY(fetch(*view, node.inode, caller.unique));
  return attributes_reply(*view, node, believed.value, believed.valid);
}

void MountCore::heard_of(View& view, const Attributes& attributes) {
  if (!attributes.is_regular() || view.frozen()) return;
  const FileKey file = view.file(attributes.inode);
  if (const auto open = open_files_.find(file)) open->learn(attributes.state());
  const Node node{view.slot, 0, attributes.inode};
  const std::uint64_t pages = nodes_.content(node).pages;
  if (pages == 0 || pages >= attributes.version) return;
  if (io_.dirty(file)) return;  // our own commit, whose answer is still on its way
  nodes_.set_pages(node, 0);
  io_.invalidate(file);
  incarnations_.remote_change(file);
  // Not from here: the request that asked may hold pages of the file.
  later([node](KernelNotifier& kernel) { kernel.invalidate_inode(node, 0, 0); });
}

// ---- Changes ----

Result<AttributesReply> MountCore::set_attributes(const Caller& caller, Node node,
                                                  const SetStat& change) {
  View* view = SL_TRY(changeable(node));
  const auto file = open_files_.get(view->file(node.inode));
  Result<Attributes> changed = [&]() -> Result<Attributes> {
    if (change.length) return set_length(*view, caller, *file, change);
    if (const auto later = put_off(*view, file->key, change)) return *later;
    const bool times = change.mtime || change.mtime_now || change.atime || change.atime_now;
    const auto dirty = io_.dirty(file->key);
    if (!dirty || !(times || dirty->set)) return send_attributes(*view, caller, node.inode, change);
    // Written or put off before, committed before: or the commit would win over this one.
    Turn::Alone turn(file->turn);
    io_.push_out(file->key);
    return send_attributes(*view, caller, node.inode, change);
  }();
  if (!changed.ok()) return changed.status();
  return attributes_reply(*view, node, *changed, names_.valid(*view->attached, now()));
}

namespace {

/// Whether the server, asked now, would do what it will do with the commit. What it might refuse,
/// or answer with more than was asked for, is asked for at once.
bool can_be_put_off(const Attributes& known, const SetStat& change) {
  const bool more = change.length || change.ctime;
  // The kernel asks for it with every change of owner; of most files there is nothing to take.
  const bool takes = change.uid || change.gid || change.kill_privileges;
  const bool privileged = (known.mode & (S_ISUID | S_ISGID)) != 0;
  return known.is_regular() && known.flags == 0 && !known.has_xattrs && !more &&
         !(takes && privileged);
}

}  // namespace

/// With the commit of the bytes that wait for one, instead of in a transaction of its own: tar sets
/// owner, mode and time of each file that it has just written. Only while nobody else has the
/// volume: a recall of the lease waits for this, and then commits everything.
std::optional<Attributes> MountCore::put_off(View& view, FileKey file, const SetStat& asked) {
  const auto dirty = io_.dirty(file);
  if (!dirty) return std::nullopt;
  const auto alone = view.attached->rely(now());
  if (!alone) return std::nullopt;
  NameCache::Change names(names_);
  names.touch_attributes(file);
  const auto known = names_.attributes(*view.attached, file.inode);
  if (!known) return std::nullopt;
  Attributes after = known->value;
  if (dirty->set) show_change(*dirty->set, after);
  if (!can_be_put_off(after, asked)) return std::nullopt;
  const WallTime wall = sessions_.clock().wall();
  SetStat change = asked;
  if (std::exchange(change.atime_now, false)) change.atime = wall;
  if (std::exchange(change.mtime_now, false)) change.mtime = wall;
  if (!io_.put_off(file, change)) return std::nullopt;
  show_change(change, after);
  after.ctime = std::max(after.ctime, wall);
  names.now(file, after);
  return after;
}

void MountCore::send_put_off(FileKey file) {
  if (const auto dirty = io_.dirty(file); dirty && dirty->set) io_.push_out(file);
}

Result<Attributes> MountCore::send_attributes(View& view, const Caller& caller, InodeId inode,
                                              const SetStat& change) {
  pb::SetAttributesRequest request;
  request.set_inode(inode.value);
  request.mutable_caller()->set_uid(caller.uid);
  request.mutable_caller()->set_gid(caller.gid);
  put_change(change, &request);
  pb::Attributes reply;
  NameCache::Change names(names_);
  names.touch_attributes(view.file(inode));
  SL_TRY(node_status(call(view, &MetaService::set_attributes, request, &reply, caller.unique)));
  const Attributes attributes = attributes_of(reply);
  names.now(view.file(inode), attributes);
  return attributes;
}

Result<Attributes> MountCore::set_length(View& view, const Caller& caller, OpenFile& file,
                                         const SetStat& change) {
  Turn::Alone turn(file.turn);
  // Nothing older may be committed after it, and nothing may be forgotten before the server has
  // agreed.
  io_.push_out(file.key);
  const auto before = names_.attributes(*view.attached, file.key.inode);
  const std::uint64_t previous = before && exclusive(view) ? before->value.version : 0;
  Attributes attributes = SL_TRY(send_attributes(view, caller, file.key.inode, change));
  incarnations_.local_truncate(file.key, *change.length);
  content_changed(view, file, previous, attributes);
  return attributes;
}

void MountCore::content_changed(View& view, OpenFile& file, std::uint64_t previous,
                                const Attributes& now) {
  io_.invalidate(file.key);
  file.learn(now.state());
  if (previous ==
      0) {  // others may have changed it before: what is cached of it is not known to be right
    incarnations_.remote_change(file.key);
    return;
  }
  nodes_.committed({view.slot, 0, file.key.inode}, previous, now.version);
  incarnations_.local_commit(file.key, previous, now.state());
}

// ---- Flags ----

Result<std::uint32_t> MountCore::get_flags(const Caller& caller, Node node) {
  if (node.slot == 0) return 0U;
  View* view = SL_TRY(views_.at(node.slot));
  return SL_TRY(fetch(*view, node.inode, caller.unique)).value.flags;
}

Status MountCore::set_flags(const Caller& caller, Node node, std::uint32_t flags) {
  View* view = SL_TRY(changeable(node));
  const auto file = open_files_.get(view->file(node.inode));
  fetch_mapped(*view, *file);
  Turn::Alone turn(file->turn);
  io_.push_out(file->key);  // written before, so allowed
  pb::SetAttributesRequest request;
  request.set_inode(node.inode.value);
  request.set_flags(flags);
  pb::Attributes reply;
  NameCache::Change names(names_);
  names.touch_attributes(file->key);
  SL_TRY(node_status(call(*view, &MetaService::set_attributes, request, &reply, caller.unique)));
  names.now(file->key, attributes_of(reply));
  return {};
}

Result<std::string> MountCore::read_link(const Caller& caller, Node node) {
  if (node.slot == 0) return {Errc::invalid, "not a symbolic link"};
  View* view = SL_TRY(views_.at(node.slot));
  pb::NodeRequest request;
  request.set_inode(node.inode.value);
  pb::XattrReply reply;
  SL_TRY(node_status(call(*view, &MetaService::read_link, request, &reply, caller.unique)));
  return std::move(*reply.mutable_value());
}

}  // namespace starlane::client
