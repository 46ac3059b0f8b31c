// Names to nodes.
#include <sys/stat.h>

#include "client/mount/call.h"

namespace starlane::client {
namespace {

constexpr std::size_t kMaxName = 255;

}  // namespace

Result<EntryReply> MountCore::lookup(const Caller& caller, Node parent, std::string_view name) {
  if (name.size() > kMaxName) return {Errc::name_too_long, "a name has at most 255 bytes"};
  if (parent.slot == 0) return lookup_own(caller, parent.inode, name);
  View* view = SL_TRY(views_.at(parent.slot));
  const Found found = SL_TRY(find(*view, parent.inode, name, caller.unique));
  if (!found.attributes.inode) {
    relooks_.forget(caller.pid);
    return absent_reply(*view, found.valid);
  }
  return entry_reply(*view, parent.inode, name, found.attributes, found.valid);
}

void MountCore::forget(Node node, std::uint64_t lookups) {
  if (node.slot == 0 || is_tree_file(node) || !nodes_.forget(node, lookups)) return;
  if (const View* view = views_.known(node.slot))
    incarnations_.forget(view->file(node.inode), node);
}

// ---- The mount's own tree ----

Result<EntryReply> MountCore::lookup_own(const Caller& caller, InodeId directory,
                                         std::string_view name) {
  std::shared_ptr<const Listing> listing =
      SL_TRY(catalogue_.listing(options_.catalogue_age, caller.unique));
  auto entry = own_.find(directory, name, *listing);
  if (!entry) {  // perhaps it is new
    listing = SL_TRY(catalogue_.listing(options_.missing_age, caller.unique));
    entry = own_.find(directory, name, *listing);
  }
  if (!entry) return lookup_tree_file(caller, directory, name, *listing);
  return own_entry(caller, *entry);
}

Result<EntryReply> MountCore::own_entry(const Caller& caller, const OwnTree::Entry& entry) {
  if (entry.item) return root_entry(caller, *entry.item);
  const Attributes attributes = SL_TRY(own_.attributes(entry.inode));
  EntryReply reply;
  reply.node = {0, 0, entry.inode};
  reply.entry_valid = reply.attributes.valid = options_.names.shared_ttl;
  reply.attributes.stat = stat_of(kOwnView, attributes, std::nullopt);
  return reply;
}

Result<EntryReply> MountCore::root_entry(const Caller& caller, const CatalogueItem& item) {
  View* view = SL_TRY(views_.attach(item, caller.unique));
  const Believed<Attributes> root = SL_TRY(fetch(*view, kRootInode, caller.unique));
  EntryReply reply = entry_reply(*view, InodeId(), {}, root.value, root.valid);
  reply.entry_valid = options_.names.shared_ttl;  // the name may be given to another tree
  return reply;
}

// ---- Names in views ----

std::optional<MountCore::Found> MountCore::known_name(View& view, InodeId directory,
                                                      std::string_view name) {
  const auto known = names_.name(*view.attached, directory, name);
  if (!known) return std::nullopt;
  if (!known->value) return Found{{}, known->valid};
  const auto attributes = names_.attributes(*view.attached, known->value);
  if (!attributes) return std::nullopt;
  return Found{attributes->value, std::min(known->valid, attributes->valid)};
}

Result<MountCore::Found> MountCore::find(View& view, InodeId directory, std::string_view name,
                                         std::uint64_t unique) {
  auto known = known_name(view, directory, name);
  (known ? options_.meters->name_hits : options_.meters->name_misses).add();
  if (known) return *std::move(known);
  const NameCache::Question question = names_.ask();
  const NameKey key{view.file(directory), std::string(name)};
  return lookups_.fly(
      key, question.order,
      [&](std::uint64_t order) {
        return names_.still_fresh({order, Nanoseconds(0)}, key.directory, key.name);
      },
      [&] { return ask_name(view, directory, key.name, unique, question); },
      [&] { return sessions_.signals().check(unique); });
}

Result<MountCore::Found> MountCore::ask_name(View& view, InodeId directory, const std::string& name,
                                             std::uint64_t unique,
                                             const NameCache::Question& question) {
  pb::LookupRequest request;
  request.set_parent(directory.value);
  request.set_name(name);
  pb::NewEntry reply;
  const Status status = call(view, &MetaService::lookup, request, &reply, unique);
  if (status.code() == Errc::not_found) {
    names_.learn_name(question, view.file(directory), name, InodeId());
    const auto known = names_.name(*view.attached, directory, name);
    return Found{{}, known && !known->value ? known->valid : Nanoseconds::zero()};
  }
  SL_TRY(status);
  const Attributes attributes = attributes_of(reply.attributes());
  names_.learn_attributes(question, view.branch(), attributes);
  names_.learn_name(question, view.file(directory), name, attributes.inode);
  heard_of(view, attributes);
  return Found{attributes, names_.valid(*view.attached, question.asked_at)};
}

std::uint8_t MountCore::incarnation_of(const View& view, const Attributes& attributes) {
  return attributes.is_regular() ? incarnations_.preferred(view.file(attributes.inode))
                                 : std::uint8_t{0};
}

EntryReply MountCore::entry_reply(View& view, InodeId directory, std::string_view name,
                                  const Attributes& attributes, Nanoseconds valid) {
  EntryReply reply;
  reply.node = {view.slot, incarnation_of(view, attributes), attributes.inode};
  reply.generation = attributes.generation;
  reply.entry_valid = valid;
  nodes_.looked_up(reply.node, directory, name);
  reply.attributes = attributes_reply(view, reply.node, attributes, valid);
  return reply;
}

EntryReply MountCore::absent_reply(View& view, Nanoseconds valid) {
  EntryReply reply;
  if (view.frozen()) {
    reply.entry_valid = valid;
  } else if (const auto alone = view.attached->rely(now())) {  // else it is asked for each time
    reply.entry_valid = valid;
    view.attached->promised_absence(now() + valid);
  }
  return reply;
}

}  // namespace starlane::client
