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
  // Only an extension can be mirrored into what is mapped; zeroes in the middle cannot.
  const bool extends = (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) == 0;
  if (!extends)
    incarnations_.remote_change(file.key);
  else if (attributes.length > old.length)
    incarnations_.local_truncate(file.key, attributes.length);
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
  if (!handle->view->frozen()) io_.push_out(handle->file->key);
  const Believed<Attributes> believed =
      SL_TRY(fetch(*handle->view, handle->file->key.inode, caller.unique));
  const std::uint64_t length = believed.value.length;
  if (offset >= length) return {Errc::no_device, "beyond the end of the file"};
  return seek_in_map(*handle, offset, whence == SEEK_DATA, length, caller.unique);
}

Result<std::uint64_t> MountCore::seek_in_map(FileHandle& handle, std::uint64_t offset, bool data,
                                             std::uint64_t length, std::uint64_t unique) {
  constexpr std::uint32_t kChunks = 256;  // of one call
  std::uint64_t at = offset;              // all before is of the other kind
  for (std::uint64_t first = offset / kChunkSize; first * kChunkSize < length; first += kChunks) {
    pb::FileMapRequest request;
    request.set_inode(handle.file->key.inode.value);
    request.set_first_chunk(static_cast<std::uint32_t>(first));
    request.set_chunks(kChunks);
    pb::FileMapReply reply;
    SL_TRY(node_status(call(*handle.view, &MetaService::file_map, request, &reply, unique)));
    for (const pb::Chunk& chunk : reply.chunks()) {
      for (const DataRange& range : data_of(chunk)) {
        const std::uint64_t begin = chunk.index() * kChunkSize + range.begin;
        const std::uint64_t end = std::min(chunk.index() * kChunkSize + range.end, length);
        if (end <= at || begin >= length) continue;
        if (data) return std::max(at, begin);
        if (begin > at) return at;  // a hole before this data
        at = end;
      }
    }
  }
  if (data) return {Errc::no_device, "no data beyond"};
  return std::min(at, length);
}

// ---- Volumes ----

Result<StatFs> MountCore::stat_fs(const Caller& caller, Node node) {
  StatFs answer;
  if (node.slot == 0) return answer;  // nothing can be stored here
  View* view = SL_TRY(views_.at(node.slot));
  pb::NodeRequest request;
  request.set_inode(node.inode.value);
  pb::StatFsReply reply;
  SL_TRY(call(*view, &MetaService::stat_fs, request, &reply, caller.unique));
  const std::uint64_t unit = answer.block_size;
  std::uint64_t total = reply.total_bytes();
  std::uint64_t left = view->frozen() ? 0 : reply.free_bytes();
  if (view->frozen()) total = reply.live_bytes();
  if (reply.quota_bytes() != 0) {
    total = reply.quota_bytes();
    const std::uint64_t unused = total - std::min(total, reply.live_bytes());
    left = reply.total_bytes() == 0 ? unused : std::min(unused, reply.free_bytes());
  }
  answer.blocks = total / unit;
  answer.blocks_free = left / unit;
  constexpr std::uint64_t kUnlimitedFiles = std::uint64_t{1} << 32;
  const std::uint64_t files =
      reply.quota_inodes() != 0 ? reply.quota_inodes() : reply.inodes() + kUnlimitedFiles;
  answer.files = view->frozen() ? reply.inodes() : files;
  answer.files_free = view->frozen() ? 0 : files - std::min(files, reply.inodes());
  return answer;
}

}  // namespace starlane::client
