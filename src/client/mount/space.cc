// Space of files: allocation, shared copies, holes; and of volumes.
#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>

#include "client/handles/holes.h"
#include "client/mount/call.h"

namespace starlane::client {
namespace {

constexpr std::uint64_t kCopyLimit = 1_GiB;  // of one call: 16 chunks a transaction
constexpr std::uint32_t kSeekChunks = 16;    // of one answer: a chunk may have thousands of entries
constexpr std::uint64_t kUnlimitedFiles = std::uint64_t{1} << 32;

bool zeroes(std::uint32_t mode) {
  return (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0;
}

}  // namespace

Status MountCore::fallocate(const Caller& caller, std::uint64_t id, std::uint32_t mode,
                            std::uint64_t offset, std::uint64_t length) {
  const std::shared_ptr<FileHandle> handle = SL_TRY(files_.at(id));
  if (handle->view->frozen())
    return Status(Errc::read_only, "a published data set cannot be changed");
  if (!handle->writer) return Status(Errc::bad_handle, "not open for writing");
  View& view = *handle->view;
  OpenFile& file = *handle->file;
  Turn::Alone turn(file.turn);
  io_.push_out(file.key);
  pb::FallocateRequest request;
  request.set_inode(file.key.inode.value);
  request.set_mode(mode);
  request.set_offset(offset);
  request.set_length(length);
  pb::Attributes reply;
  const auto before = names_.attributes(*view.attached, file.key.inode);
  const std::uint64_t previous = before && exclusive(view) ? before->value.version : 0;
  const FileState old = file.state();
  Attributes attributes;
  {
    NameCache::Change names(names_);
    names.touch_attributes(file.key);
    SL_TRY(node_status(call(view, &MetaService::fallocate, request, &reply, caller.unique)));
    attributes = attributes_of(reply);
    names.now(file.key, attributes);
  }
  if (zeroes(mode)) incarnations_.local_zero(file.key, offset, length);
  if (attributes.length > old.length) incarnations_.local_truncate(file.key, attributes.length);
  content_changed(view, file, previous, attributes);
  return {};
}

// ---- Copies that share blocks ----

Result<std::uint64_t> MountCore::copy_range(const Caller& caller, const CopyRange& range) {
  const std::shared_ptr<FileHandle> from = SL_TRY(files_.at(range.source_handle));
  const std::shared_ptr<FileHandle> to = SL_TRY(files_.at(range.handle));
  if (to->view->frozen()) return {Errc::read_only, "a published data set cannot be changed"};
  if (!to->writer) return {Errc::bad_handle, "not open for writing"};
  if (range.length == 0) return std::uint64_t{0};
  if (!from->view->frozen()) io_.push_out(from->file->key);
  return ask_copy(*from, *to, range, caller);
}

Result<std::uint64_t> MountCore::ask_copy(FileHandle& from, FileHandle& to, const CopyRange& range,
                                          const Caller& caller) {
  View& view = *to.view;
  OpenFile& file = *to.file;
  Turn::Alone turn(file.turn);
  io_.push_out(file.key);  // older than the copy, so committed before it
  pb::CopyRangeRequest request;
  request.set_inode(file.key.inode.value);
  request.set_offset(range.offset);
  request.set_source_branch(from.file->key.branch.value);
  request.set_source_inode(from.file->key.inode.value);
  request.set_source_offset(range.source_offset);
  request.set_length(std::min(range.length, kCopyLimit));
  const Requests::Number number = sessions_.requests().begin(caller.unique);
  const auto before = names_.attributes(*view.attached, file.key.inode);
  const std::uint64_t previous = before && exclusive(view) ? before->value.version : 0;
  pb::CopyRangeReply reply;
  Attributes attributes;
  {
    NameCache::Change names(names_);
    names.touch_attributes(file.key);
    const Status status =
        call(view, &MetaService::copy_range, request, &reply, caller.unique, number.value());
    // Then the kernel copies the bytes.
    if (status.code() == Errc::unsupported || status.code() == Errc::not_implemented)
      return Status(Errc::cross_device, status.text());
    SL_TRY(node_status(status));
    if (reply.copied() == 0) return std::uint64_t{0};
    attributes = attributes_of(reply.attributes());
    names.now(file.key, attributes);
  }
  incarnations_.remote_change(file.key);  // what is mapped cannot be told the bytes
  content_changed(view, file, previous, attributes);
  return reply.copied();
}

// ---- Holes ----

Result<std::uint64_t> MountCore::seek(const Caller& caller, std::uint64_t id, std::uint64_t offset,
                                      int whence) {
  const std::shared_ptr<FileHandle> handle = SL_TRY(files_.at(id));
  if (whence != SEEK_DATA && whence != SEEK_HOLE)
    return {Errc::invalid, "only SEEK_DATA and SEEK_HOLE"};
  if (!handle->view->frozen()) {
    fetch_mapped(*handle->view, *handle->file);
    io_.push_out(handle->file->key);
  }
  const auto what = whence == SEEK_DATA ? HoleSearch::For::data : HoleSearch::For::hole;
  return seek_in_map(*handle, offset, what, caller.unique);
}

void MountCore::fetch_mapped(const View& view, OpenFile& file) {
  if (!file.has_writer() || !file.open_cached()) return;
  notifier_->invalidate_inode({view.slot, 0, file.key.inode}, 0, 0);
}

Result<std::uint64_t> MountCore::seek_in_map(FileHandle& handle, std::uint64_t offset,
                                             HoleSearch::For what, std::uint64_t unique) {
  HoleSearch search(what, offset);
  pb::FileMapRequest request;
  request.set_inode(handle.file->key.inode.value);
  request.set_chunks(kSeekChunks);
  request.set_skip_holes(true);
  for (std::uint64_t first = offset / kChunkSize; first <= UINT32_MAX;) {
    request.set_first_chunk(static_cast<std::uint32_t>(first));
    pb::FileMapReply reply;
    SL_TRY(node_status(call(*handle.view, &MetaService::file_map, request, &reply, unique)));
    if (offset >= reply.length()) return {Errc::no_device, "beyond the end of the file"};
    for (const pb::Chunk& chunk : reply.chunks()) {
      if (const auto found = search.look(chunk, reply.length())) return *found;
      first = std::uint64_t{chunk.index()} + 1;
    }
    const bool end = reply.chunks_size() < static_cast<int>(kSeekChunks);
    if (!end && first * kChunkSize < reply.length()) continue;
    if (what == HoleSearch::For::data) break;
    return std::min(search.reached(), reply.length());
  }
  return {Errc::no_device, "no data beyond"};
}

// ---- Volumes ----

/// What a volume uses is exactly what its files hold; it is followed by the room that it may still
/// take: of its quota, or of the whole store.
Result<StatFs> MountCore::stat_fs(const Caller& caller, Node node) {
  if (node.slot == 0) return stat_site(caller);
  View* view = SL_TRY(views_.at(node.slot));
  pb::NodeRequest request;
  request.set_inode(node.inode.value);
  pb::StatFsReply reply;
  SL_TRY(call(*view, &MetaService::stat_fs, request, &reply, caller.unique));
  const std::uint64_t used = reply.live_bytes();
  const std::uint64_t room = view->frozen() ? 0 : reply.free_bytes();
  const bool limited = reply.quota_bytes() != 0;
  const std::uint64_t total = limited ? std::max(reply.quota_bytes(), used) : used + room;
  StatFs answer;
  answer.blocks = total / answer.block_size;
  answer.blocks_free = answer.blocks - std::min(answer.blocks, divide_up(used, answer.block_size));
  // Targets that have not said yet how much they have limit nothing.
  const bool unknown = limited && reply.total_bytes() == 0;
  answer.blocks_available =
      unknown ? answer.blocks_free : std::min(answer.blocks_free, room / answer.block_size);
  answer.files = reply.quota_inodes() != 0 ? reply.quota_inodes() : reply.inodes();
  if (reply.quota_inodes() == 0 && !view->frozen()) answer.files += kUnlimitedFiles;
  answer.files_free = answer.files - std::min(answer.files, reply.inodes());
  return answer;
}

/// Of the mount's own tree: what the targets have, and all files of all volumes.
Result<StatFs> MountCore::stat_site(const Caller& caller) {
  MetaRetry& retry = sessions_.retry();
  pb::StatFsReply space;
  SL_TRY(retry.call(&MetaService::stat_fs, Call{}, pb::NodeRequest(), &space, caller.unique));
  pb::ListVolumesReply volumes;
  SL_TRY(retry.call(&MetaService::volume_list, Call{}, pb::Empty(), &volumes, caller.unique));
  StatFs answer;
  answer.blocks = space.total_bytes() / answer.block_size;
  answer.blocks_free = answer.blocks_available = space.free_bytes() / answer.block_size;
  for (const pb::Volume& volume : volumes.volumes()) answer.files += volume.inodes();
  answer.files_free = kUnlimitedFiles;
  answer.files += answer.files_free;
  return answer;
}

}  // namespace starlane::client
