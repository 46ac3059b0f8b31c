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
  std::optional<DirtyState> dirty;
  if (attributes.is_regular() && !view.frozen()) {
    dirty = io_.dirty(view.file(attributes.inode));
    nodes_.set_shown(node, attributes.version);
    if (dirty) valid = Nanoseconds::zero();  // how much it takes is known after the commit
  }
  return {stat_of(view.view(), attributes, dirty), valid};
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
    const bool times = change.mtime || change.mtime_now || change.atime || change.atime_now;
    if (!times || !io_.dirty(file->key)) return send_attributes(*view, caller, node.inode, change);
    // Written before, committed before: or the commit's time would win over this one.
    Turn::Alone turn(file->turn);
    io_.push_out(file->key);
    return send_attributes(*view, caller, node.inode, change);
  }();
  if (!changed.ok()) return changed.status();
  return attributes_reply(*view, node, *changed, names_.valid(*view->attached, now()));
}

Result<Attributes> MountCore::send_attributes(View& view, const Caller& caller, InodeId inode,
                                              const SetStat& change) {
  pb::SetAttributesRequest request;
  request.set_inode(inode.value);
  request.mutable_caller()->set_uid(caller.uid);
  request.mutable_caller()->set_gid(caller.gid);
  if (change.mode) request.set_mode(*change.mode & 07777);
  if (change.uid) request.set_uid(*change.uid);
  if (change.gid) request.set_gid(*change.gid);
  if (change.length) request.set_length(*change.length);
  if (change.atime) put_time(*change.atime, request.mutable_atime());
  if (change.mtime) put_time(*change.mtime, request.mutable_mtime());
  if (change.ctime) put_time(*change.ctime, request.mutable_ctime());
  request.set_atime_now(change.atime_now);
  request.set_mtime_now(change.mtime_now);
  request.set_kill_privileges(change.kill_privileges);
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
