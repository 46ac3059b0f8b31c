// long_chunks and replace_chunk: lists that grew long, or of whose slices little is seen any more,
// and their exchange for a short one that reads the same.
#include <algorithm>
#include <map>

#include "common/bytes.h"
#include "meta/contents.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"
#include "meta/truncate.h"
#include "meta/upkeep/walk.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kMaxPage = 1'024;
constexpr int kMaxNew = 64;

struct MarkKey {
  BranchId branch;
  InodeId inode;
  std::uint32_t chunk = 0;
};

Result<MarkKey> parse_mark(std::string_view key) {
  KeyReader reader(key);
  MarkKey mark{reader.branch(), InodeId{reader.u64()}, reader.u32()};
  if (!reader.done()) return damaged("long chunk");
  return mark;
}

struct Checked {
  std::size_t entries = 0;
  bool is_long = false;
  bool wasteful = false;
};

/// Slices that others refer to as well stay whatever becomes of this list.
Result<bool> wastes_own(kv::Transaction& t, const std::vector<Entry>& entries) {
  std::vector<SliceUse> uses = slice_uses(entries);
  if (!is_wasteful(uses)) return false;
  std::vector<std::string> keys;
  for (const SliceUse& use : uses) keys.push_back(count_key(use.slice));
  const std::vector<std::int64_t> further = SL_TRY(t.totals(keys));
  std::vector<SliceUse> own;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (further[i] <= 0) own.push_back(uses[i]);
  }
  return is_wasteful(own);
}

/// Why the chunk is to be merged; takes the mark away if there is no reason any more.
Result<Checked> check_mark(Context& context, const MarkKey& mark) {
  Checked checked;
  const std::string key = long_chunk_key(mark.branch, mark.inode, mark.chunk);
  if (const Status done = kv::run(
          context.engine, kv::Durability::ordered,
          [&](kv::Transaction& t) -> Status {
            const Rows rows =
                SL_TRY(t.get_many({key, slices_key(mark.branch, mark.inode, mark.chunk)}));
            checked = {};
            if (rows[1]) {
              const SlicesRow row = SL_TRY(SlicesRow::decode(rows[1]->value));
              checked.entries = row.entries.size();
              checked.is_long = checked.entries > context.options.long_list;
              checked.wasteful = !checked.is_long && SL_TRY(wastes_own(t, row.entries));
            }
            if (checked.is_long || checked.wasteful || !rows[0]) return {};
            t.expect(
                key,
                rows[0]->version);  // A commit that makes the list long again sets the mark anew.
            t.del(key);
            return {};
          });
      !done.ok())
    return done;
  return checked;
}

}  // namespace

Status op_long_chunks(Context& context, const Call&, const pb::KeeperRequest& request,
                      pb::LongChunksReply* reply) {
  const std::size_t limit = request.limit() == 0 ? kMaxPage : std::min(request.limit(), kMaxPage);
  const Walked walked = SL_TRY(walk_table(context, Table::long_chunk,
                                          {BranchId{request.branch()}, request.cursor(), limit}));
  reply->Clear();
  reply->set_cursor(walked.cursor);
  for (const kv::Row& row : walked.rows) {
    const MarkKey mark = SL_TRY(parse_mark(row.key));
    const Checked checked = SL_TRY(check_mark(context, mark));
    if (!checked.is_long && !checked.wasteful) continue;
    pb::LongChunk* chunk = reply->add_chunks();
    chunk->set_branch(mark.branch.value);
    chunk->set_inode(mark.inode.value);
    chunk->set_chunk(mark.chunk);
    chunk->set_entries(static_cast<std::uint32_t>(checked.entries));
    chunk->set_wasteful(checked.wasteful);
  }
  return {};
}

namespace {

/// The slices that come in, by their reservation.
struct Incoming {
  std::vector<Entry> entries;
  std::map<std::uint64_t, std::uint64_t> bits;  // batch -> its bits of these slices
};

Result<Incoming> incoming_of(const pb::ReplaceChunkRequest& request) {
  if (request.slices_size() > kMaxNew)
    return {Errc::invalid, "a list is replaced by at most 64 slices"};
  Incoming incoming;
  for (const pb::NewSlice& slice : request.slices()) {
    Entry entry = SL_TRY(entry_of(slice.entry()));
    const bool placed =
        entry.position <= kChunkSize - entry.length && slice.chunk() == request.chunk();
    const std::uint64_t bit = slice.entry().slice() - slice.batch();
    if (entry.kind != SliceKind::data || !placed || slice.batch() == 0 ||
        slice.entry().slice() < slice.batch() || bit >= 64) {
      return {Errc::invalid, "a merged slice is reserved, holds data and lies in its chunk"};
    }
    incoming.bits[slice.batch()] |= std::uint64_t{1} << bit;
    incoming.entries.push_back(entry);
  }
  return incoming;
}

bool same(const Entry& entry, const pb::SliceEntry& said) {
  return entry.position == said.position() && entry.length == said.length() &&
         entry.offset == said.offset() && static_cast<int>(entry.kind) == said.kind() &&
         entry.slice.value == said.slice() && entry.owner.value == said.owner() &&
         entry.slice_length == said.slice_length();
}

bool front_is(const std::vector<Entry>& entries, const pb::ReplaceChunkRequest& request) {
  const auto count = static_cast<std::size_t>(request.replaced_size());
  if (count == 0 || count > entries.size()) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (!same(entries[i], request.replaced(static_cast<int>(i)))) return false;
  }
  return true;
}

/// True: these slices are in the file already, since this call has happened.
Result<bool> take_bits(Change& change, const Incoming& incoming) {
  bool happened = false;
  for (const auto& [batch, bits] : incoming.bits) {
    const std::string key = reserved_key(change.branch(), change.access.session, batch);
    const std::optional<kv::Row> row = SL_TRY(change.t.get(key));
    if (!row) return {Errc::invalid, "the slices of a merge were not reserved by this session"};
    ReservedRow reserved = SL_TRY(ReservedRow::decode(row->value));
    if (reserved.count < 64 && (bits >> reserved.count) != 0) {
      return {Errc::invalid, "a slice lies beyond its reservation"};
    }
    happened = happened || (reserved.committed & bits) != 0;
    reserved.header = change.header();
    reserved.committed |= bits;
    change.t.expect(key, row->version);
    change.t.put(key, reserved.encode());
  }
  return happened;
}

Status exchange(Change& change, const pb::ReplaceChunkRequest& request, const Incoming& incoming,
                Node& node, const std::optional<kv::Row>& row) {
  Contents contents(change, node.inode, node.row.version);
  SL_TRY(contents.load(request.chunk(), row));
  Chunk& chunk = contents.chunk(request.chunk());
  if (!front_is(chunk.entries(), request))
    return {Errc::stale, "the list of slices has changed meanwhile"};
  SlicesRow merged = chunk.row();
  const std::vector<Entry> newer(merged.entries.begin() + request.replaced_size(),
                                 merged.entries.end());
  merged.entries.clear();
  for (Entry entry : incoming.entries) {
    entry.owner = change.branch();
    entry.birth = static_cast<std::uint32_t>(change.head.epoch);
    contents.reserved(request.chunk(), entry);
    merged.entries.push_back(entry);
  }
  merged.entries.insert(merged.entries.end(), newer.begin(), newer.end());
  chunk = Chunk(std::move(merged));
  const std::int64_t bytes = SL_TRY(contents.store());
  if (bytes != 0) {  // Holes that were bridged are data now.
    charge_contents(change, node, bytes);
    put_node(change, node);
  } else {
    change.t.guard(inode_key(change.branch(), node.inode));
  }
  return {};
}

Status replace(Change& change, const pb::ReplaceChunkRequest& request, const Incoming& incoming,
               const Rows& rows, pb::Attributes* reply) {
  if (!rows[0]) return {Errc::not_found, "no such file"};
  Node node = SL_TRY(node_of(InodeId{request.inode()}, rows[0]));
  if (!node.row.is_regular()) return {Errc::invalid, "only files have contents"};
  const bool happened = SL_TRY(take_bits(change, incoming));
  if (!happened) SL_TRY(exchange(change, request, incoming, node, rows[1]));
  put_attributes(node.inode, node.row, {}, reply);
  return {};
}

}  // namespace

// The content does not change, so the file's version does not either: a reader with the old map
// finds a block gone, and reads the map again.
Status op_replace_chunk(Context& context, const Call&, const pb::ReplaceChunkRequest& request,
                        pb::Attributes* reply) {
  const Incoming incoming = SL_TRY(incoming_of(request));
  const Access access = access_of(request.on());
  const InodeId inode{request.inode()};
  return change_branch(
      context, access, number_of(Method::replace_chunk),
      {inode_key(access.branch, inode), slices_key(access.branch, inode, request.chunk())}, reply,
      [&](Change& change, Rows& rows) { return replace(change, request, incoming, rows, reply); });
}

}  // namespace starlane::meta
