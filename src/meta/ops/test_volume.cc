#include "meta/ops/test_volume.h"

#include "common/bytes.h"
#include "meta/chunk.h"
#include "meta/nodes.h"

namespace starlane::meta {
namespace {

void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

}  // namespace

void make_branch(kv::Engine& engine, BranchId branch, const HeadRow& head) {
  must(kv::run(engine, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
    t.put(head_key(branch), head.encode());
    put_root(t, branch, head, {}, WallTime{1'600'000'000, 0});
    return {};
  }));
}

void let_in(kv::Engine& engine, BranchId branch, SessionId session, std::uint64_t epoch,
            std::uint8_t flags) {
  must(kv::run(engine, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
    t.put(session_key(session), MarkRow{}.encode());
    t.put(attachment_key(branch, session), MarkRow{{flags, epoch}}.encode());
    return {};
  }));
}

void edit_head(kv::Engine& engine, BranchId branch, const std::function<void(HeadRow&)>& change) {
  must(kv::run(engine, kv::Durability::ordered, [&](kv::Transaction& t) -> Status {
    HeadRow head = SL_TRY(read_head(t, branch));
    change(head);
    t.put(head_key(branch), head.encode());
    return {};
  }));
}

TestVolume::TestVolume(kv::Engine& engine, BranchId branch, Options options)
    : context_(engine, clock_, std::move(options)) {
  on.set_branch(branch.value);
}

template <typename Reply, typename Request>
Result<Reply> TestVolume::run(Status (*op)(Context&, const Call&, const Request&, Reply*),
                              Request request) {
  if constexpr (requires { request.mutable_on(); }) *request.mutable_on() = on;
  Reply reply;
  SL_TRY(op(context_, call, request, &reply));
  return reply;
}

Result<pb::Attributes> TestVolume::lookup(std::uint64_t parent, const std::string& name) {
  pb::LookupRequest request;
  request.set_parent(parent);
  request.set_name(name);
  const pb::NewEntry reply = SL_TRY(run(op_lookup, request));
  return reply.attributes();
}

Result<pb::Attributes> TestVolume::attributes(std::uint64_t inode) {
  pb::NodeRequest request;
  request.set_inode(inode);
  return run(op_get_attributes, request);
}

Result<pb::Attributes> TestVolume::set(const pb::SetAttributesRequest& request) {
  return run(op_set_attributes, request);
}

Result<pb::Attributes> TestVolume::truncate(std::uint64_t inode, std::uint64_t length) {
  pb::SetAttributesRequest request;
  request.set_inode(inode);
  request.set_length(length);
  return set(request);
}

Result<pb::Attributes> TestVolume::create(std::uint64_t parent, const std::string& name,
                                          std::uint32_t mode) {
  pb::CreateRequest request;
  request.set_parent(parent);
  request.set_name(name);
  request.set_mode(mode);
  const pb::NewEntry reply = SL_TRY(run(op_create, request));
  return reply.attributes();
}

Result<pb::Attributes> TestVolume::mkdir(std::uint64_t parent, const std::string& name,
                                         std::uint32_t mode) {
  pb::CreateRequest request;
  request.set_parent(parent);
  request.set_name(name);
  request.set_mode(mode);
  const pb::NewEntry reply = SL_TRY(run(op_make_directory, request));
  return reply.attributes();
}

Result<pb::Attributes> TestVolume::symlink(std::uint64_t parent, const std::string& name,
                                           const std::string& target) {
  pb::CreateRequest request;
  request.set_parent(parent);
  request.set_name(name);
  request.set_mode(kSymlink | 0777);
  request.set_target(target);
  const pb::NewEntry reply = SL_TRY(run(op_create, request));
  return reply.attributes();
}

Result<pb::Attributes> TestVolume::link(std::uint64_t inode, std::uint64_t parent,
                                        const std::string& name) {
  pb::LinkRequest request;
  request.set_inode(inode);
  request.set_parent(parent);
  request.set_name(name);
  const pb::NewEntry reply = SL_TRY(run(op_link, request));
  return reply.attributes();
}

Result<pb::UnlinkReply> TestVolume::unlink(std::uint64_t parent, const std::string& name,
                                           bool held) {
  pb::UnlinkRequest request;
  request.set_parent(parent);
  request.set_name(name);
  request.set_held(held);
  return run(op_unlink, request);
}

Result<pb::UnlinkReply> TestVolume::rmdir(std::uint64_t parent, const std::string& name) {
  pb::UnlinkRequest request;
  request.set_parent(parent);
  request.set_name(name);
  return run(op_remove_directory, request);
}

Result<pb::RenameReply> TestVolume::rename(std::uint64_t parent, const std::string& name,
                                           std::uint64_t new_parent, const std::string& new_name,
                                           std::uint32_t flags) {
  pb::RenameRequest request;
  request.set_parent(parent);
  request.set_name(name);
  request.set_new_parent(new_parent);
  request.set_new_name(new_name);
  request.set_flags(flags);
  return run(op_rename, request);
}

Result<std::vector<std::string>> TestVolume::list(std::uint64_t inode) {
  std::vector<std::string> names;
  pb::ReadDirectoryRequest request;
  request.set_inode(inode);
  request.set_limit(3);  // several pages of any but the smallest
  for (;;) {
    const pb::ReadDirectoryReply page = SL_TRY(run(op_read_directory, request));
    for (const pb::DirectoryEntry& entry : page.entries()) names.push_back(entry.name());
    if (page.end()) return names;
    request.set_after(names.back());
  }
}

Result<pb::ReserveSlicesReply> TestVolume::reserve(std::uint32_t count) {
  pb::ReserveSlicesRequest request;
  request.set_session(on.session());
  request.set_branch(on.branch());
  request.set_count(count);
  return run(op_reserve_slices, request);
}

Result<pb::CommitReply> TestVolume::write(std::uint64_t inode, std::uint64_t offset,
                                          std::uint32_t length) {
  pb::CommitRequest request;
  request.set_inode(inode);
  const pb::ReserveSlicesReply reserved = SL_TRY(reserve(2));
  std::uint64_t slice = reserved.first();
  while (length > 0) {
    const auto position = static_cast<std::uint32_t>(offset % kChunkSize);
    const auto piece = std::min(length, static_cast<std::uint32_t>(kChunkSize) - position);
    pb::NewSlice* added = request.add_slices();
    added->set_chunk(static_cast<std::uint32_t>(offset / kChunkSize));
    added->set_batch(reserved.batch());
    added->mutable_entry()->set_position(position);
    added->mutable_entry()->set_length(piece);
    added->mutable_entry()->set_slice_length(piece);
    added->mutable_entry()->set_slice(slice++);
    offset += piece;
    length -= piece;
  }
  return commit(request);
}

Result<pb::CommitReply> TestVolume::write_inline(std::uint64_t inode, std::uint64_t offset,
                                                 const std::string& content) {
  pb::CommitRequest request;
  request.set_inode(inode);
  pb::NewSlice* added = request.add_slices();
  added->set_chunk(static_cast<std::uint32_t>(offset / kChunkSize));
  pb::SliceEntry* entry = added->mutable_entry();
  entry->set_kind(pb::SliceEntry::INLINE);
  entry->set_position(static_cast<std::uint32_t>(offset % kChunkSize));
  entry->set_length(static_cast<std::uint32_t>(content.size()));
  entry->set_slice_length(entry->length());
  entry->set_inline_data(content);
  return commit(request);
}

Result<pb::CommitReply> TestVolume::commit(const pb::CommitRequest& request) {
  return run(op_commit, request);
}

Result<pb::FileMapReply> TestVolume::map(std::uint64_t inode, std::uint32_t first,
                                         std::uint32_t chunks) {
  pb::FileMapRequest request;
  request.set_inode(inode);
  request.set_first_chunk(first);
  request.set_chunks(chunks);
  return run(op_file_map, request);
}

Result<pb::Attributes> TestVolume::fallocate(std::uint64_t inode, std::uint32_t mode,
                                             std::uint64_t offset, std::uint64_t length) {
  pb::FallocateRequest request;
  request.set_inode(inode);
  request.set_mode(mode);
  request.set_offset(offset);
  request.set_length(length);
  return run(op_fallocate, request);
}

Result<pb::CopyRangeReply> TestVolume::copy(std::uint64_t source, std::uint64_t from,
                                            std::uint64_t inode, std::uint64_t to,
                                            std::uint64_t length, BranchId source_branch) {
  pb::CopyRangeRequest request;
  request.set_source_branch(source_branch ? source_branch.value : on.branch());
  request.set_source_inode(source);
  request.set_source_offset(from);
  request.set_inode(inode);
  request.set_offset(to);
  request.set_length(length);
  return run(op_copy_range, request);
}

namespace {

/// The byte that `entry` shows `at` bytes behind its position; bytes of a slice are told apart by
/// the slice's number.
std::uint64_t shown(const pb::SliceEntry& entry, std::uint64_t at) {
  const std::uint64_t offset = entry.offset() + at;
  if (entry.kind() == pb::SliceEntry::ZERO) return 0;
  if (entry.kind() == pb::SliceEntry::INLINE) {
    return static_cast<unsigned char>(entry.inline_data()[static_cast<std::size_t>(offset)]);
  }
  return (entry.slice() << 32) + offset;
}

}  // namespace

std::vector<std::uint64_t> TestVolume::read(std::uint64_t inode, std::uint64_t offset,
                                            std::uint32_t length) {
  std::vector<std::uint64_t> bytes(length);
  const Result<pb::FileMapReply> reply =
      map(inode, static_cast<std::uint32_t>(offset / kChunkSize));
  must(reply.status());
  for (const pb::Chunk& chunk : reply->chunks()) {
    for (const pb::SliceEntry& entry : chunk.entries()) {
      const std::uint64_t start = chunk.index() * kChunkSize + entry.position();
      const std::uint64_t first = std::max(start, offset);
      const std::uint64_t last = std::min(start + entry.length(), offset + length);
      for (std::uint64_t at = first; at < last; ++at) bytes[at - offset] = shown(entry, at - start);
    }
  }
  return bytes;
}

std::int64_t TestVolume::total(What what) {
  const auto t = context_.engine.begin();
  return t->total(accumulator_key(branch(), InodeId{}, what)).value();
}

std::int64_t TestVolume::count_of(std::uint64_t slice) {
  const auto t = context_.engine.begin();
  return t->total(count_key(SliceId{slice})).value();
}

std::vector<kv::Row> TestVolume::rows(Table table) {
  const KeyRange range = table_range(Space::branch, branch(), table);
  const auto t = context_.engine.begin();
  return t->scan({range.first, range.last, 1'000'000}).value();
}

}  // namespace starlane::meta
