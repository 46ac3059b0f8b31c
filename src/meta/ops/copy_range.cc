// copy_range: the destination refers to the same slices; no bytes move. Slices of volumes count the
// new references (K), those of a frozen image pin the image (P); inline content is copied. The
// source's rows are read again and expected in the same transaction, so that nothing is shared that
// is dying.
#include <algorithm>

#include "common/bytes.h"
#include "meta/contents.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"
#include "meta/protection.h"
#include "meta/truncate.h"

namespace starlane::meta {
namespace {

constexpr std::uint64_t kMaxCopy = 1_GiB;

/// One attempt: what is copied where.
struct Copy {
  FileKey source;
  bool frozen = false;  // the source is a frozen image
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t length = 0;
};

Status check_copy(const pb::CopyRangeRequest& request) {
  if (request.offset() > kMaxLength ||
      std::min(request.length(), kMaxCopy) > kMaxLength - request.offset()) {
    return {Errc::file_too_large, "a file has at most 2^58 bytes"};
  }
  return {};
}

bool overlaps_itself(const Copy& copy, const FileKey& own) {
  const std::uint64_t apart = copy.from > copy.to ? copy.from - copy.to : copy.to - copy.from;
  return copy.source == own && apart < copy.length;
}

/// Zeros the destination's range: what the source has is put over it.
void clear_range(Contents& contents, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t at = first; at < last;) {
    const std::uint64_t start = round_down(at, kChunkSize);
    const std::uint64_t end = std::min(last, start + kChunkSize);
    Chunk& chunk = contents.chunk(static_cast<std::uint32_t>(at / kChunkSize));
    chunk.zero(static_cast<std::uint32_t>(at - start), static_cast<std::uint32_t>(end - start));
    at = end;
  }
}

/// Puts `entry`, which shows `length` bytes from its offset on, at `at` in the file, cut at chunks.
void put_piece(Contents& contents, Entry entry, std::uint64_t at, std::uint32_t length,
               std::string_view content) {
  while (length > 0) {
    entry.position = static_cast<std::uint32_t>(at % kChunkSize);
    entry.length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(length, kChunkSize - entry.position));
    contents.chunk(static_cast<std::uint32_t>(at / kChunkSize)).add(entry, content);
    at += entry.length;
    entry.offset += entry.length;
    length -= entry.length;
  }
}

Status copy_piece(Change& change, Contents& contents, const Copy& copy, const SlicesRow& row,
                  const Piece& piece, std::uint64_t chunk_start) {
  const std::uint64_t first = std::max(chunk_start + piece.position, copy.from);
  const std::uint64_t last = std::min(chunk_start + piece.end(), copy.from + copy.length);
  Entry entry = row.entries[piece.entry];
  if (first >= last || entry.kind == SliceKind::zero) return {};
  if (entry.kind == SliceKind::origin)
    return {Errc::cross_device, "a lazily imported range is copied as bytes"};
  entry.offset += static_cast<std::uint32_t>(first - chunk_start) - entry.position;
  entry.birth = static_cast<std::uint32_t>(change.head.epoch);
  std::string_view content;
  if (entry.kind == SliceKind::inline_bytes) {
    content = row.inline_of(entry.slice);
    entry.slice = SL_TRY(change.context.new_slices(1));
    entry.owner = change.branch();
  } else if (copy.frozen && entry.owner == copy.source.branch) {
    entry.flags |= kPinned;
  }
  put_piece(contents, entry, first - copy.from + copy.to, static_cast<std::uint32_t>(last - first),
            content);
  return {};
}

/// Keys of the chunks that hold [offset, offset + length) of a file; length > 0.
std::vector<std::string> chunk_keys(const FileKey& file, std::uint64_t offset,
                                    std::uint64_t length) {
  std::vector<std::string> keys;
  for (std::uint64_t chunk = offset / kChunkSize; chunk <= (offset + length - 1) / kChunkSize;
       ++chunk) {
    keys.push_back(slices_key(file.branch, file.inode, static_cast<std::uint32_t>(chunk)));
  }
  return keys;
}

Status copy_contents(Change& change, const Copy& copy, Node& node) {
  const std::vector<std::string> source_keys = chunk_keys(copy.source, copy.from, copy.length);
  std::vector<std::string> keys = source_keys;
  const std::vector<std::string> own =
      chunk_keys({change.branch(), node.inode}, copy.to, copy.length);
  keys.insert(keys.end(), own.begin(), own.end());
  const Rows rows = SL_TRY(change.t.get_many(keys));
  Contents contents(change, node.inode, node.row.version);
  for (std::size_t i = 0; i < own.size(); ++i) {
    SL_TRY(contents.load(static_cast<std::uint32_t>(copy.to / kChunkSize + i),
                         rows[source_keys.size() + i]));
  }
  clear_range(contents, copy.to, copy.to + copy.length);
  for (std::size_t i = 0; i < source_keys.size(); ++i) {
    if (!copy.frozen) change.t.expect(source_keys[i], rows[i] ? rows[i]->version : kv::kAbsent);
    if (!rows[i]) continue;
    const SlicesRow row = SL_TRY(SlicesRow::decode(rows[i]->value));
    const std::uint64_t start = (copy.from / kChunkSize + i) * kChunkSize;
    const std::vector<Piece> pieces = visible_pieces(row.entries);
    for (const Piece& piece : pieces) SL_TRY(copy_piece(change, contents, copy, row, piece, start));
  }
  const std::int64_t bytes = SL_TRY(contents.store());
  charge_contents(change, node, bytes);
  return {};
}

/// The source's state, and what of it can be copied. rows: own node, source's node, source's head,
/// its attachment.
Result<Copy> plan_copy(Change& change, const pb::CopyRangeRequest& request, const Rows& rows) {
  Copy copy;
  copy.source = {BranchId{request.source_branch()}, InodeId{request.source_inode()}};
  const HeadRow head = SL_TRY(need<HeadRow>(rows[2], "volume to copy from"));
  if (head.state == BranchState::deleting)
    return {Errc::not_found, "the copy's source is being deleted"};
  const bool foreign = copy.source.branch != change.branch();
  if (foreign && change.access.session && !rows[3]) {
    return {Errc::access, "this session has not attached what it copies from"};
  }
  if (foreign) change.t.guard(head_key(copy.source.branch));
  copy.frozen = head.state == BranchState::frozen;
  const InodeRow row = SL_TRY(need<InodeRow>(rows[1], "file to copy from"));
  if (row.is_directory()) return {Errc::is_directory, "a directory cannot be copied from"};
  if (!row.is_regular()) return {Errc::invalid, "only files have contents"};
  copy.from = request.source_offset();
  copy.to = request.offset();
  if (copy.from < row.length)
    copy.length = std::min({request.length(), kMaxCopy, row.length - copy.from});
  return copy;
}

Status run_copy(Change& change, const pb::CopyRangeRequest& request, const Rows& rows,
                pb::CopyRangeReply* reply) {
  if (!rows[0]) return {Errc::not_found, "no such file"};
  Node node = SL_TRY(node_of(InodeId{request.inode()}, rows[0]));
  if (node.row.is_directory()) return {Errc::is_directory, "a directory"};
  if (!node.row.is_regular()) return {Errc::invalid, "only files have contents"};
  SL_TRY(may_change(node.row));
  const Copy copy = SL_TRY(plan_copy(change, request, rows));
  if (overlaps_itself(copy, {change.branch(), node.inode})) {
    return {Errc::invalid, "the ranges of a copy within a file overlap"};
  }
  if (copy.length > 0) {
    SL_TRY(copy_contents(change, copy, node));
    node.row.length = std::max(node.row.length, copy.to + copy.length);
    node.row.version += 1;
    node.row.mtime = change.now;
    touch_ctime(node.row, change.now);
    put_node(change, node);
  }
  reply->set_copied(copy.length);
  put_attributes(node.inode, node.row, {}, reply->mutable_attributes());
  return {};
}

}  // namespace

Status op_copy_range(Context& context, const Call&, const pb::CopyRangeRequest& request,
                     pb::CopyRangeReply* reply) {
  SL_TRY(check_copy(request));
  const Access access = access_of(request.on());
  const BranchId source{request.source_branch()};
  std::vector<std::string> keys = {inode_key(access.branch, InodeId{request.inode()}),
                                   inode_key(source, InodeId{request.source_inode()}),
                                   head_key(source)};
  if (access.session) keys.push_back(attachment_key(source, access.session));
  return change_branch(
      context, access, number_of(Method::copy_range), keys, reply,
      [&](Change& change, Rows& rows) { return run_copy(change, request, rows, reply); });
}

}  // namespace starlane::meta
