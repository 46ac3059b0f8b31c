// Volumes and data sets.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "capi/client.h"

using namespace starlane;
using namespace starlane::capi;

namespace {

constexpr std::uint32_t kVolumeMode = 0755;

template <std::size_t N>
void copy_text(const std::string& from, char (&to)[N]) {
  const std::size_t n = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

void fill(const pb::Volume& volume, sl_volume* out) {
  out->sessions = volume.sessions();
  out->live_bytes = volume.live_bytes();
  out->inodes = volume.inodes();
  out->quota_bytes = volume.quota_bytes();
  out->quota_inodes = volume.quota_inodes();
  copy_text(volume.name(), out->name);
  out->deleting = volume.state() == "deleting" ? 1 : 0;
}

void fill(const pb::Image& image, sl_dataset* out) {
  out->frozen = image.state() == "published" ? 1 : 0;
  out->files = image.files();
  out->directories = image.directories();
  out->bytes = image.bytes();
  out->created_seconds = image.created().seconds();
  copy_text(image.name(), out->name);
  copy_text(image.version(), out->version);
  copy_text(image.digest(), out->digest);
}

/// The caller's array, whose elements may be longer than ours.
template <typename Item, typename Messages>
Status fill_all(const Messages& messages, Item* items, std::size_t room, std::size_t* count) {
  if (count == nullptr || (items == nullptr && room > 0))
    return Status(Errc::invalid, "a list needs an array and a place for the count");
  if (room > 0 && items->size < sizeof(Item))
    return Status(Errc::invalid, "set size of the first element to its sizeof");
  *count = static_cast<std::size_t>(messages.size());
  const std::uint32_t stride = room > 0 ? items->size : 0;
  auto* at = reinterpret_cast<char*>(items);
  for (int i = 0; i < messages.size() && static_cast<std::size_t>(i) < room; ++i, at += stride) {
    std::memset(at, 0, stride);
    auto* item = reinterpret_cast<Item*>(at);
    item->size = stride;
    fill(messages[i], item);
  }
  return {};
}

Status no_name() { return {Errc::invalid, "the name is a null pointer"}; }

}  // namespace

extern "C" {

int sl_volume_create(sl_client* client, const char* name, uint64_t quota_bytes,
                     uint64_t quota_inodes) {
  return with_client(client, [&](const Calls::Scope&) -> Status {
    if (name == nullptr) return no_name();
    pb::VolumeRequest request;
    request.set_name(name);
    request.set_quota_bytes(quota_bytes);
    request.set_quota_inodes(quota_inodes);
    request.set_uid(::geteuid());
    request.set_gid(::getegid());
    request.set_mode(kVolumeMode);
    pb::Volume volume;
    return client->embedded->meta().volume_create({}, request, &volume);
  });
}

int sl_volume_delete(sl_client* client, const char* name, int force) {
  return with_client(client, [&](const Calls::Scope&) -> Status {
    if (name == nullptr) return no_name();
    pb::VolumeRequest request;
    request.set_name(name);
    request.set_force(force != 0);
    pb::Empty reply;
    return client->embedded->meta().volume_delete({}, request, &reply);
  });
}

int sl_volume_list(sl_client* client, sl_volume* volumes, size_t room, size_t* count) {
  return with_client(client, [&](const Calls::Scope&) -> Status {
    pb::ListVolumesReply reply;
    SL_TRY(client->embedded->meta().volume_list({}, {}, &reply));
    return fill_all(reply.volumes(), volumes, room, count);
  });
}

int sl_dataset_list(sl_client* client, sl_dataset* datasets, size_t room, size_t* count) {
  return with_client(client, [&](const Calls::Scope&) -> Status {
    pb::ListImagesReply reply;
    SL_TRY(client->embedded->meta().image_list({}, {}, &reply));
    return fill_all(reply.images(), datasets, room, count);
  });
}

}  // extern "C"
