// file_map: where a file's bytes are; read_link: the target of a symbolic link, which is content
// too.
#include "meta/chunk.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kMaxChunks = 256;

Status add_chunk(const kv::Row& found, pb::FileMapReply* reply) {
  const SlicesKey key = SL_TRY(parse_slices_key(found.key));
  const SlicesRow row = SL_TRY(SlicesRow::decode(found.value));
  pb::Chunk* chunk = reply->add_chunks();
  chunk->set_index(key.chunk);
  for (const Entry& entry : row.entries) put_entry(row, entry, chunk->add_entries());
  return {};
}

}  // namespace

Status op_file_map(Context& context, const Call&, const pb::FileMapRequest& request,
                   pb::FileMapReply* reply) {
  if (request.chunks() == 0 || request.chunks() > kMaxChunks) {
    return {Errc::invalid, "a file's map is answered for 1 to 256 chunks"};
  }
  const BranchId branch{request.on().branch()};
  const InodeId inode{request.inode()};
  const std::uint64_t first = request.first_chunk();
  const KeyRange range = request.skip_holes()
                             ? slices_of(branch, inode, first)
                             : slices_of(branch, inode, first, first + request.chunks());
  return context.read([&](kv::Transaction& t) -> Status {
    reply->Clear();
    const Rows rows = SL_TRY(t.get_many({inode_key(branch, inode), head_key(branch)}));
    const InodeRow row = SL_TRY(need<InodeRow>(rows[0], "file"));
    const HeadRow head = SL_TRY(need<HeadRow>(rows[1], "volume"));
    if (row.is_directory()) return {Errc::is_directory, "a directory"};
    reply->set_version(row.version);
    reply->set_length(row.length);
    reply->set_frozen(head.state == BranchState::frozen);
    const std::vector<kv::Row> found = SL_TRY(t.scan({range.first, range.last, request.chunks()}));
    for (const kv::Row& one : found) SL_TRY(add_chunk(one, reply));
    return {};
  });
}

Status op_read_link(Context& context, const Call&, const pb::NodeRequest& request,
                    pb::XattrReply* reply) {
  const BranchId branch{request.on().branch()};
  const InodeId inode{request.inode()};
  return context.read([&](kv::Transaction& t) -> Status {
    const Rows rows = SL_TRY(t.get_many({inode_key(branch, inode), slices_key(branch, inode, 0)}));
    const InodeRow row = SL_TRY(need<InodeRow>(rows[0], "file"));
    if (!row.is_symlink()) return {Errc::invalid, "not a symbolic link"};
    const SlicesRow content = SL_TRY(need<SlicesRow>(rows[1], "target"));
    if (content.inlines.size() != 1) return damaged("symbolic link");
    reply->set_value(content.inlines[0].bytes);
    return {};
  });
}

}  // namespace starlane::meta
