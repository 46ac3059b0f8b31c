#include "meta/contents.h"

#include <algorithm>

#include "common/bytes.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kMaxInlineInRow = 64_KiB;

bool by_slice(const Entry& a, const Entry& b) { return a.slice < b.slice; }

}  // namespace

std::vector<Entry> references_of(const std::vector<Entry>& entries) {
  std::vector<Entry> references;
  for (const Entry& entry : entries) {
    if (entry.kind == SliceKind::data) references.push_back(entry);
  }
  std::stable_sort(references.begin(), references.end(), by_slice);
  const auto same = [](const Entry& a, const Entry& b) { return a.slice == b.slice; };
  references.erase(std::unique(references.begin(), references.end(), same), references.end());
  return references;
}

void put_dead(Change& change, InodeId inode, std::uint32_t chunk, std::uint64_t version,
              const Entry& entry) {
  const DeadKey key{change.branch(), change.head.epoch, entry.birth, entry.slice, inode, chunk,
                    version};
  DeadRow row;
  row.header = change.header();
  row.owner = entry.owner;
  row.slice_length = entry.slice_length;
  row.placement_epoch = entry.placement_epoch;
  row.layout = entry.layout;
  row.flags = entry.flags;
  change.t.put(dead_key(key), row.encode());
  change.t.add(accumulator_key(change.branch(), InodeId{}, What::held), entry.slice_length);
}

Status bury_chunk(Change& change, InodeId inode, std::uint64_t version, const kv::Row& row) {
  const SlicesKey key = SL_TRY(parse_slices_key(row.key));
  const SlicesRow slices = SL_TRY(SlicesRow::decode(row.value));
  const std::vector<Entry> references = references_of(slices.entries);
  for (const Entry& entry : references) put_dead(change, inode, key.chunk, version, entry);
  change.t.expect(row.key, row.version);
  change.t.del(row.key);
  if (slices.entries.size() > change.context.options.long_list) {
    change.t.del(long_chunk_key(change.branch(), inode, key.chunk));
  }
  return {};
}

Status Contents::load(std::uint32_t index, const std::optional<kv::Row>& row) {
  Loaded loaded;
  if (row) {
    loaded.chunk = Chunk(SL_TRY(SlicesRow::decode(row->value)));
    loaded.version = row->version;
  }
  loaded.before = loaded.chunk.entries();
  loaded.covered = loaded.chunk.covered();
  chunks_.insert_or_assign(index, std::move(loaded));
  return {};
}

Status Contents::load(const kv::Row& row) {
  const SlicesKey key = SL_TRY(parse_slices_key(row.key));
  return load(key.chunk, row);
}

Chunk& Contents::chunk(std::uint32_t index) {
  const auto found = chunks_.find(index);
  SL_CHECK(found != chunks_.end());
  return found->second.chunk;
}

Result<std::int64_t> Contents::store() {
  std::int64_t bytes = 0;
  for (auto& [index, loaded] : chunks_) SL_TRY(store_one(index, loaded, &bytes));
  for (const auto& [slice, fresh] : fresh_) {
    if (!fresh.taken) put_dead(change_, inode_, fresh.index, version_, fresh.entry);
  }
  return bytes;
}

Status Contents::store_one(std::uint32_t index, Loaded& loaded, std::int64_t* bytes) {
  Chunk& chunk = loaded.chunk;
  change_.t.expect(slices_key(change_.branch(), inode_, index), loaded.version);
  if (chunk.entries() == loaded.before) return {};
  SliceId fresh;
  if (chunk.entries().size() > 1 && chunk.inline_size() > 0)
    fresh = SL_TRY(change_.context.new_slices(1));
  chunk.tidy(fresh);
  const Options& options = change_.context.options;
  const std::size_t length = chunk.entries().size();
  if (length > options.max_list && length > loaded.before.size()) {
    return {Errc::busy,
            "a part of this file was written in too many pieces; they are being merged"};
  }
  if (chunk.inline_size() > kMaxInlineInRow) {
    return {Errc::too_big, "too many small writes are kept in metadata here: write them as blocks"};
  }
  *bytes += static_cast<std::int64_t>(chunk.covered()) - static_cast<std::int64_t>(loaded.covered);
  settle_references(index, loaded);
  write_row(index, loaded);
  return {};
}

void Contents::write_row(std::uint32_t index, const Loaded& loaded) {
  const BranchId branch = change_.branch();
  const std::size_t long_list = change_.context.options.long_list;
  const std::size_t before = loaded.before.size();
  const std::size_t after = loaded.chunk.entries().size();
  // Named again now and then, should the mark be taken away while the list is still long.
  const bool grew_long = after > long_list && (before <= long_list || after % 64 == 0);
  if (grew_long || grew_wasteful(loaded)) {
    change_.t.put(long_chunk_key(branch, inode_, index), MarkRow{change_.header()}.encode());
  }
  const std::string key = slices_key(branch, inode_, index);
  if (after == 0) {
    if (loaded.version != kv::kAbsent) change_.t.del(key);
    if (before > long_list) change_.t.del(long_chunk_key(branch, inode_, index));
    return;
  }
  SlicesRow row = loaded.chunk.row();
  row.header = change_.header();
  change_.t.put(key, row.encode());
}

/// What was there before shows less now, and the rest is worth being written anew.
bool Contents::grew_wasteful(const Loaded& loaded) const {
  if (loaded.before.empty() || loaded.chunk.empty()) return false;
  const std::vector<SliceUse> uses = slice_uses(loaded.chunk.entries());
  return is_wasteful(uses) && unseen_bytes(uses) > unseen_bytes(slice_uses(loaded.before));
}

void Contents::settle_references(std::uint32_t index, const Loaded& loaded) {
  const std::vector<Entry> before = references_of(loaded.before);
  const std::vector<Entry> after = references_of(loaded.chunk.entries());
  std::vector<Entry> gone;
  std::vector<Entry> come;
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(),
                      std::back_inserter(gone), by_slice);
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::back_inserter(come), by_slice);
  for (const Entry& entry : gone) put_dead(change_, inode_, index, version_, entry);
  for (const Entry& entry : come) born(entry);
}

void Contents::born(const Entry& entry) {
  if (entry.flags & kPinned) {
    change_.t.add(image_pins_key(entry.owner), 1);
    return;
  }
  const auto first = fresh_.find(entry.slice);
  if (first != fresh_.end() && !first->second.taken) {
    first->second.taken = true;
    return;
  }
  change_.t.add(count_key(entry.slice), 1);
}

}  // namespace starlane::meta
