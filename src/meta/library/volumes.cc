// volume_create, volume_list, volume_get, volume_set, volume_delete.
#include "meta/escrow.h"
#include "meta/library/branches.h"
#include "meta/library/library_rows.h"
#include "meta/members/attachments.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kTrashSeconds = 86'400;  // of a new volume
constexpr std::uint32_t kTrashMinAgeSeconds = 60;
constexpr std::size_t kMaxVolumes = 65'536;  // that one list tells

std::uint64_t positive(std::int64_t total) {
  return total > 0 ? static_cast<std::uint64_t>(total) : 0;
}

void put_settings(const HeadRow& head, pb::Volume* out) {
  out->set_quota_bytes(head.quota_bytes);
  out->set_quota_inodes(head.quota_inodes);
  out->set_trash_seconds(head.trash_seconds);
  out->set_trash_min_age_seconds(head.trash_min_age_seconds);
}

Status fill_volume(kv::Transaction& t, std::string_view name, const VolumeRow& row,
                   pb::Volume* out) {
  const std::string_view shown = name_before_deleting(name);
  out->set_name(shown.data(), shown.size());
  out->set_branch(row.branch.value);
  put_time(row.created, out->mutable_created());
  out->set_state(is_deleting_name(name) ? "deleting" : "active");
  const std::optional<kv::Row> head_row = SL_TRY(t.get(head_key(row.branch)));
  if (!head_row) return {};  // The last step of its deletion.
  const HeadRow head = SL_TRY(HeadRow::decode(head_row->value));
  out->set_view(head.view.value);
  put_settings(head, out);
  out->set_sessions(head.attachments);
  const Usage usage = SL_TRY(read_usage(t, row.branch));
  out->set_live_bytes(usage.live_bytes);
  out->set_escrow_bytes(usage.escrow_bytes);
  out->set_inodes(usage.inodes);
  const std::vector<std::int64_t> totals =
      SL_TRY(t.totals({accumulator_key(row.branch, InodeId{}, What::held),
                       accumulator_key(row.branch, InodeId{}, What::trash_bytes),
                       accumulator_key(row.branch, InodeId{}, What::trash_inodes)}));
  out->set_held_bytes(positive(totals[0]));
  out->set_trash_bytes(positive(totals[1]));
  out->set_trash_inodes(positive(totals[2]));
  return {};
}

Result<VolumeRow> find_volume(kv::Transaction& t, const std::string& name, kv::Version* version) {
  SL_TRY(check_library_name("the name of a volume", name));
  const std::optional<kv::Row> row = SL_TRY(t.get(volume_key(name)));
  if (!row) return {Errc::not_found, "there is no volume named " + name};
  if (version != nullptr) *version = row->version;
  return VolumeRow::decode(row->value);
}

Status check_new_volume(const pb::VolumeRequest& request) {
  SL_TRY(check_library_name("the name of a volume", request.name()));
  if ((request.mode() & ~07777u) != 0) {
    return {Errc::invalid, "the mode of a volume's root has permission bits only"};
  }
  return {};
}

}  // namespace

Status op_volume_create(Context& context, const Call&, const pb::VolumeRequest& request,
                        pb::Volume* reply) {
  SL_TRY(check_new_volume(request));
  const BranchIds ids = SL_TRY(new_branch_ids(context));
  const std::string key = volume_key(request.name());
  return kv::run(context.engine, kv::Durability::durable, [&](kv::Transaction& t) -> Status {
    if (SL_TRY(t.get(key))) {
      return {Errc::exists, "there is a volume named " + request.name() + " already"};
    }
    HeadRow head;
    head.kind = BranchKind::volume;
    head.quota_bytes = request.quota_bytes();
    head.quota_inodes = request.quota_inodes();
    head.trash_seconds = kTrashSeconds;
    head.trash_min_age_seconds = kTrashMinAgeSeconds;
    const std::uint32_t mode = request.mode() == 0 ? 0755 : request.mode();
    put_branch(context, t, ids, head, {mode, request.uid(), request.gid()});
    const VolumeRow row{{}, ids.branch, context.clock.wall()};
    t.expect(key, kv::kAbsent);
    t.put(key, row.encode());
    reply->Clear();
    SL_TRY(fill_volume(t, request.name(), row, reply));
    reply->set_view(ids.view.value);
    put_settings(head, reply);
    reply->set_inodes(1);
    return {};
  });
}

// Every change of the volume that is under way runs again under the new settings.
Status op_volume_set(Context& context, const Call&, const pb::VolumeSettings& request,
                     pb::Volume* reply) {
  return kv::run(context.engine, kv::Durability::durable, [&](kv::Transaction& t) -> Status {
    reply->Clear();
    const VolumeRow volume = SL_TRY(find_volume(t, request.name(), nullptr));
    const std::optional<kv::Row> row = SL_TRY(t.get(head_key(volume.branch)));
    HeadRow head = SL_TRY(need<HeadRow>(row, "volume"));
    if (request.has_quota_bytes()) head.quota_bytes = request.quota_bytes();
    if (request.has_quota_inodes()) head.quota_inodes = request.quota_inodes();
    if (request.has_trash_seconds()) head.trash_seconds = request.trash_seconds();
    if (request.has_trash_min_age_seconds())
      head.trash_min_age_seconds = request.trash_min_age_seconds();
    t.expect(head_key(volume.branch), row->version);
    t.put(head_key(volume.branch), head.encode());
    SL_TRY(fill_volume(t, request.name(), volume, reply));
    put_settings(head, reply);
    return {};
  });
}

Status op_volume_list(Context& context, const Call&, const pb::Empty&,
                      pb::ListVolumesReply* reply) {
  return context.read([&](kv::Transaction& t) -> Status {
    reply->Clear();
    const KeyRange range = table_range(Space::system, BranchId{}, Table::volume);
    for (const kv::Row& row : SL_TRY(scan_all(t, range, kMaxVolumes))) {
      KeyReader key(row.key);
      const VolumeRow volume = SL_TRY(VolumeRow::decode(row.value));
      SL_TRY(fill_volume(t, key.rest(), volume, reply->add_volumes()));
    }
    return {};
  });
}

Status op_volume_get(Context& context, const Call&, const pb::VolumeRequest& request,
                     pb::Volume* reply) {
  return context.read([&](kv::Transaction& t) -> Status {
    reply->Clear();
    const VolumeRow row = SL_TRY(find_volume(t, request.name(), nullptr));
    return fill_volume(t, request.name(), row, reply);
  });
}

Status op_volume_delete(Context& context, const Call& call, const pb::VolumeRequest& request,
                        pb::Empty*) {
  return kv::run(context.engine, kv::Durability::durable, [&](kv::Transaction& t) -> Status {
    kv::Version version = kv::kAbsent;
    const VolumeRow row = SL_TRY(find_volume(t, request.name(), &version));
    std::size_t others = 0;
    for (const Attached& one : SL_TRY(attached_to(t, row.branch)))
      others += one.session != call.session;
    if (others > 0 && !request.force()) {
      return {Errc::busy, "volume " + request.name() + " is attached by " + std::to_string(others) +
                              (others == 1 ? " session" : " sessions") +
                              ": unmount it there, or delete it by force"};
    }
    t.expect(volume_key(request.name()), version);
    t.del(volume_key(request.name()));
    t.put(volume_key(deleting_name(row.branch, request.name())), row.encode());
    return start_deleting(t, row.branch);
  });
}

}  // namespace starlane::meta
