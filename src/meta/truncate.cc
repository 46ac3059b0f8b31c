#include "meta/truncate.h"

#include <algorithm>

#include "common/bytes.h"
#include "meta/contents.h"
#include "proto/meta.pb.h"

namespace starlane::meta {
namespace {

constexpr std::uint64_t kAllChunks = std::uint64_t{1} << 32;

/// Cuts the loaded chunks of a file to `length`, and charges for it.
Status cut_chunks(Change& change, Node& node, const std::vector<kv::Row>& rows,
                  std::uint64_t length) {
  Contents contents(change, node.inode, node.row.version);
  for (const kv::Row& row : rows) {
    SL_TRY(contents.load(row));
    const SlicesKey key = SL_TRY(parse_slices_key(row.key));
    const std::uint64_t start = key.chunk * kChunkSize;
    const std::uint64_t left = length > start ? length - start : 0;
    contents.chunk(key.chunk).cut(static_cast<std::uint32_t>(std::min(left, kChunkSize)));
  }
  const std::int64_t bytes = SL_TRY(contents.store());
  charge_contents(change, node, bytes);
  return {};
}

void changed_length(Change& change, Node& node, std::uint64_t length) {
  if (node.row.length != length) node.row.version += 1;
  node.row.length = length;
  node.row.mtime = change.now;
  touch_ctime(node.row, change.now);
}

/// Indices of the chunks from `first` on that have rows.
Result<std::vector<std::uint32_t>> list_chunks(Context& context, const Access& access,
                                               InodeId inode, std::uint64_t first) {
  std::vector<std::uint32_t> chunks;
  KeyRange range = slices_of(access.branch, inode, first);
  const std::size_t page = context.options.chunks_a_step;
  for (;;) {
    std::vector<kv::Row> rows;
    const Status read = context.read([&](kv::Transaction& t) -> Status {
      rows = SL_TRY(t.scan({range.first, range.last, page}));
      return {};
    });
    if (!read.ok()) return read;
    for (const kv::Row& row : rows) {
      const SlicesKey key = SL_TRY(parse_slices_key(row.key));
      chunks.push_back(key.chunk);
    }
    if (rows.size() < page) return chunks;
    range.first = rows.back().key + '\0';
  }
}

/// Cuts off everything from chunk `from` on.
Status cut_from(Context& context, const Access& access, InodeId inode, std::uint32_t from) {
  const KeyRange range = slices_of(access.branch, inode, from);
  const std::size_t limit = 2 * std::size_t{context.options.chunks_a_step};
  pb::Empty nothing;
  Access step = access;
  step.request = 0;
  return change_branch(
      context, step, 0, {inode_key(access.branch, inode)}, &nothing,
      [&](Change& change, Rows& rows) -> Status {
        if (!rows[0]) return {Errc::not_found, "no such file"};
        Node node = SL_TRY(node_of(inode, rows[0]));
        const std::vector<kv::Row> chunks = SL_TRY(change.t.scan({range.first, range.last, limit}));
        if (chunks.size() == limit) return {};  // it grew meanwhile: look again
        const std::uint64_t length = std::min(node.row.length, from * kChunkSize);
        SL_TRY(cut_chunks(change, node, chunks, length));
        changed_length(change, node, length);
        put_node(change, node);
        return {};
      });
}

}  // namespace

void add_contents(Node& node, std::int64_t bytes) {
  const auto held = static_cast<std::int64_t>(node.row.bytes);
  node.row.bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(held + bytes, 0));
}

void charge_contents(Change& change, Node& node, std::int64_t bytes) {
  add_contents(node, bytes);
  if (node.row.nlink > 0) change.charge(bytes, 0);
}

Status set_length(Change& change, Node& node, std::uint64_t length, bool* too_long) {
  if (node.row.is_directory()) return {Errc::is_directory, "a directory has no length to set"};
  if (!node.row.is_regular()) return {Errc::invalid, "only files have a length to set"};
  if (length > kMaxLength) return {Errc::file_too_large, "a file has at most 2^58 bytes"};
  if (length < node.row.length) {
    const KeyRange range = slices_of(change.branch(), node.inode, length / kChunkSize);
    const std::size_t limit = std::size_t{change.context.options.chunks_a_step} + 1;
    const std::vector<kv::Row> rows = SL_TRY(change.t.scan({range.first, range.last, limit}));
    if (rows.size() == limit) {
      *too_long = true;
      return {Errc::busy, "the file is being shortened in steps"};
    }
    SL_TRY(cut_chunks(change, node, rows, length));
  }
  changed_length(change, node, length);
  return {};
}

Status shorten_in_steps(Context& context, const Access& access, InodeId inode,
                        std::uint64_t length) {
  const std::size_t step = context.options.chunks_a_step;
  for (;;) {
    const std::vector<std::uint32_t> chunks =
        SL_TRY(list_chunks(context, access, inode, divide_up(length, kChunkSize)));
    if (chunks.size() < step) return {};
    std::size_t left = chunks.size();
    while (left >= step) {
      left -= step;
      SL_TRY(cut_from(context, access, inode, chunks[left]));
    }
  }
}

namespace {

/// Rows of chunks that died with their file, until the step's limit.
Result<bool> free_chunks(Change& change, const Node& node) {
  const KeyRange range = slices_of(change.branch(), node.inode, 0, kAllChunks);
  const std::size_t limit = change.context.options.chunks_a_step;
  const std::vector<kv::Row> rows = SL_TRY(change.t.scan({range.first, range.last, limit}));
  for (const kv::Row& row : rows) {
    SL_TRY(bury_chunk(change, node.inode, node.row.version, row));
  }
  return rows.size() < limit;
}

Status free_step(Change& change, const UnlinkedKey& key, const std::string& unlinked,
                 const Rows& rows, bool* done) {
  *done = true;
  if (!rows[0]) return {};
  change.t.expect(unlinked, rows[0]->version);
  const KeyRange pins = pins_of(change.branch(), key.inode);
  if (!SL_TRY(change.t.scan({pins.first, pins.last, 1})).empty()) {
    return {Errc::busy, "a session still has the file open"};
  }
  change.t.expect_empty(pins.first, pins.last);
  if (!rows[1]) {
    change.t.del(unlinked);
    return {};
  }
  Node node = SL_TRY(node_of(key.inode, rows[1]));
  if (node.row.nlink != 0) return {Errc::corrupt, "a file with names is listed as unlinked"};
  *done = SL_TRY(free_chunks(change, node));
  if (!*done) {
    node.row.flags &= ~kLinkable;  // it is not whole any more
    node.row.version += 1;
    put_node(change, node);
    return {};
  }
  SL_TRY(drop_xattrs(change, node.inode, node.row));
  if (node.row.is_directory()) clear_directory(change, node.inode, node.row);
  change.t.expect(rows[1]->key, rows[1]->version);
  change.t.del(rows[1]->key);
  change.t.del(unlinked);
  return {};
}

}  // namespace

Result<bool> free_unlinked_step(Context& context, const std::string& unlinked) {
  const UnlinkedKey key = SL_TRY(parse_unlinked_key(unlinked));
  const Access access{key.branch, {}, 0, 0, true};
  pb::Empty nothing;
  bool done = false;
  const Status freed = change_branch(
      context, access, 0, {unlinked, inode_key(key.branch, key.inode)}, &nothing,
      [&](Change& change, Rows& rows) { return free_step(change, key, unlinked, rows, &done); });
  if (!freed.ok()) return freed;
  return done;
}

}  // namespace starlane::meta
