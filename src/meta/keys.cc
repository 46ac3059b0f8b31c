#include "meta/keys.h"

#include "common/bytes.h"

namespace starlane::meta {
namespace {

class KeyWriter {
 public:
  KeyWriter(Space space, BranchId branch, Table table) {
    key_.reserve(48);
    u8(static_cast<std::uint8_t>(space)).u64(branch.value).u8(static_cast<std::uint8_t>(table));
  }
  KeyWriter& u8(std::uint8_t value) {
    key_.push_back(static_cast<char>(value));
    return *this;
  }
  KeyWriter& u32(std::uint32_t value) {
    char raw[sizeof value];
    store_little(raw, __builtin_bswap32(value));
    key_.append(raw, sizeof raw);
    return *this;
  }
  KeyWriter& u64(std::uint64_t value) {
    char raw[sizeof value];
    store_big64(raw, value);
    key_.append(raw, sizeof raw);
    return *this;
  }
  KeyWriter& text(std::string_view value) {
    key_.append(value);
    return *this;
  }
  std::string take() { return std::move(key_); }

 private:
  std::string key_;
};

KeyWriter system(Table table) { return {Space::system, BranchId{}, table}; }
KeyWriter shared(Table table) { return {Space::shared, BranchId{}, table}; }
KeyWriter in(BranchId branch, Table table) { return {Space::branch, branch, table}; }

Status not_a_key(const char* of) {
  return {Errc::corrupt, std::string("the key of ") + of + " row is malformed"};
}

}  // namespace

KeyRange prefix_range(std::string prefix) {
  KeyRange range{prefix, std::move(prefix)};
  while (!range.last.empty() && range.last.back() == '\xff') range.last.pop_back();
  if (!range.last.empty()) range.last.back() = static_cast<char>(range.last.back() + 1);
  return range;
}

KeyRange table_range(Space space, BranchId branch, Table table) {
  return prefix_range(KeyWriter(space, branch, table).take());
}

std::string volume_key(std::string_view name) { return system(Table::volume).text(name).take(); }
std::string head_key(BranchId branch) { return system(Table::head).u64(branch.value).take(); }
std::string view_key(ViewId view) { return system(Table::view).u32(view.value).take(); }
std::string id_pool_key(Pool pool, BranchId branch) {
  return system(Table::id_pool).u8(static_cast<std::uint8_t>(pool)).u64(branch.value).take();
}
std::string session_key(SessionId session) {
  return system(Table::session).u64(session.value).take();
}
std::string session_by_nonce_key(std::string_view nonce) {
  return system(Table::session_by_nonce).text(nonce).take();
}
std::string dead_session_key(SessionId session) {
  return system(Table::dead_session).u64(session.value).take();
}
std::string heard_key(SessionId session) { return system(Table::heard).u64(session.value).take(); }
std::string attachment_key(BranchId branch, SessionId session) {
  return system(Table::attachment).u64(branch.value).u64(session.value).take();
}
KeyRange attachments_of(BranchId branch) {
  return prefix_range(system(Table::attachment).u64(branch.value).take());
}
std::string attached_by_key(SessionId session, BranchId branch) {
  return system(Table::attached_by).u64(session.value).u64(branch.value).take();
}
KeyRange attached_by(SessionId session) {
  return prefix_range(system(Table::attached_by).u64(session.value).take());
}
std::string map_key(std::uint64_t epoch) { return system(Table::map).u64(epoch).take(); }
std::string image_key(std::string_view name, std::string_view version) {
  return system(Table::image).text(name).u8(0).text(version).take();
}
KeyRange image_versions(std::string_view name) {
  return prefix_range(system(Table::image).text(name).u8(0).take());
}
std::string cluster_key() { return system(Table::cluster).take(); }
std::string counter_key(std::uint8_t what) { return system(Table::counter).u8(what).take(); }
std::string reaper_key() { return system(Table::reaper).take(); }
std::string flushed_key() { return system(Table::flushed).take(); }
std::string scrub_key(TargetId target) { return system(Table::scrub).u32(target.value).take(); }
std::string window_key(std::uint64_t since_ns) {
  return system(Table::window).u64(since_ns).take();
}

std::string inode_key(BranchId branch, InodeId inode) {
  return in(branch, Table::inode).u64(inode.value).take();
}
std::string entry_key(BranchId branch, InodeId parent, std::string_view name) {
  return in(branch, Table::entry).u64(parent.value).text(name).take();
}
KeyRange entries_of(BranchId branch, InodeId parent) {
  return prefix_range(in(branch, Table::entry).u64(parent.value).take());
}
std::string name_key(BranchId branch, InodeId inode, InodeId parent, std::string_view name) {
  return in(branch, Table::name).u64(inode.value).u64(parent.value).text(name).take();
}
KeyRange names_of(BranchId branch, InodeId inode) {
  return prefix_range(in(branch, Table::name).u64(inode.value).take());
}
std::string slices_key(BranchId branch, InodeId inode, std::uint32_t chunk) {
  return in(branch, Table::slices).u64(inode.value).u32(chunk).take();
}
KeyRange slices_of(BranchId branch, InodeId inode, std::uint64_t first, std::uint64_t last) {
  KeyRange all = prefix_range(in(branch, Table::slices).u64(inode.value).take());
  const std::uint64_t end = std::uint64_t{1} << 32;
  if (first >= end) return {all.last, all.last};
  all.first = slices_key(branch, inode, static_cast<std::uint32_t>(first));
  if (last < end) all.last = slices_key(branch, inode, static_cast<std::uint32_t>(last));
  return all;
}
std::string xattr_key(BranchId branch, InodeId inode, std::string_view name) {
  return in(branch, Table::xattr).u64(inode.value).text(name).take();
}
KeyRange xattrs_of(BranchId branch, InodeId inode) {
  return prefix_range(in(branch, Table::xattr).u64(inode.value).take());
}
std::string accumulator_key(BranchId branch, InodeId inode, What what, std::uint64_t generation) {
  return in(branch, Table::accumulator)
      .u64(inode.value)
      .u8(static_cast<std::uint8_t>(what))
      .u64(generation)
      .u64(0)
      .take();
}
std::string unlinked_key(BranchId branch, std::uint64_t ready_ns, InodeId inode) {
  return in(branch, Table::unlinked).u64(ready_ns).u64(inode.value).take();
}
std::string trashed_key(BranchId branch, std::uint64_t deleted_ns, InodeId inode) {
  return in(branch, Table::trashed).u64(deleted_ns).u64(inode.value).take();
}
std::string pin_key(BranchId branch, InodeId inode, SessionId session) {
  return in(branch, Table::pin).u64(inode.value).u64(session.value).take();
}
KeyRange pins_of(BranchId branch, InodeId inode) {
  return prefix_range(in(branch, Table::pin).u64(inode.value).take());
}
std::string lock_key(BranchId branch, InodeId inode) {
  return in(branch, Table::lock).u64(inode.value).take();
}
std::string reserved_key(BranchId branch, SessionId session, std::uint64_t batch) {
  return in(branch, Table::reserved).u64(session.value).u64(batch).take();
}
KeyRange reserved_by(BranchId branch, SessionId session) {
  return prefix_range(in(branch, Table::reserved).u64(session.value).take());
}
std::string outcome_key(BranchId branch, SessionId session, std::uint64_t request) {
  return in(branch, Table::outcome).u64(session.value).u64(request).take();
}
KeyRange outcomes_below(BranchId branch, SessionId session, std::uint64_t request) {
  return {outcome_key(branch, session, 0), outcome_key(branch, session, request)};
}
std::string long_chunk_key(BranchId branch, InodeId inode, std::uint32_t chunk) {
  return in(branch, Table::long_chunk).u64(inode.value).u32(chunk).take();
}
std::string dead_key(const DeadKey& dead) {
  return in(dead.branch, Table::dead)
      .u64(dead.death)
      .u64(dead.birth)
      .u64(dead.slice.value)
      .u64(dead.inode.value)
      .u32(dead.chunk)
      .u64(dead.version)
      .take();
}

std::string count_key(SliceId slice) { return shared(Table::count).u64(slice.value).take(); }
std::string image_pins_key(BranchId image) {
  return shared(Table::pins).u64(image.value).u64(0).take();
}

KeyReader::KeyReader(std::string_view key) : left_(key) {
  space_ = static_cast<Space>(u8());
  branch_ = BranchId{u64()};
  table_ = static_cast<Table>(u8());
}

std::uint8_t KeyReader::u8() {
  if (left_.empty()) return ok_ = false, std::uint8_t{0};
  const auto value = static_cast<std::uint8_t>(left_.front());
  left_.remove_prefix(1);
  return value;
}

std::uint32_t KeyReader::u32() {
  if (left_.size() < 4) return ok_ = false, 0;
  const auto value = __builtin_bswap32(load_little<std::uint32_t>(left_.data()));
  left_.remove_prefix(4);
  return value;
}

std::uint64_t KeyReader::u64() {
  if (left_.size() < 8) return ok_ = false, 0;
  const std::uint64_t value = load_big64(left_.data());
  left_.remove_prefix(8);
  return value;
}

std::string_view KeyReader::rest() { return std::exchange(left_, {}); }

Result<DeadKey> parse_dead_key(std::string_view key) {
  KeyReader r(key);
  DeadKey dead;
  dead.branch = r.branch();
  dead.death = r.u64();
  dead.birth = r.u64();
  dead.slice = SliceId{r.u64()};
  dead.inode = InodeId{r.u64()};
  dead.chunk = r.u32();
  dead.version = r.u64();
  if (!r.done() || r.space() != Space::branch || r.table() != Table::dead)
    return not_a_key("a dead reference's");
  return dead;
}

Result<EntryKey> parse_entry_key(std::string_view key) {
  KeyReader r(key);
  EntryKey entry{r.branch(), InodeId{r.u64()}, r.rest()};
  if (!r.ok() || r.space() != Space::branch || r.table() != Table::entry || entry.name.empty()) {
    return not_a_key("a directory entry's");
  }
  return entry;
}

Result<SlicesKey> parse_slices_key(std::string_view key) {
  KeyReader r(key);
  SlicesKey slices{r.branch(), InodeId{r.u64()}, r.u32()};
  if (!r.done() || r.space() != Space::branch || r.table() != Table::slices)
    return not_a_key("a chunk's");
  return slices;
}

Result<UnlinkedKey> parse_unlinked_key(std::string_view key) {
  KeyReader r(key);
  UnlinkedKey unlinked;
  unlinked.branch = r.branch();
  unlinked.ready_ns = r.u64();
  unlinked.inode = InodeId{r.u64()};
  if (!r.done() || r.space() != Space::branch || r.table() != Table::unlinked) {
    return not_a_key("an unlinked file's");
  }
  return unlinked;
}

Result<TrashedKey> parse_trashed_key(std::string_view key) {
  KeyReader r(key);
  TrashedKey trashed;
  trashed.branch = r.branch();
  trashed.deleted_ns = r.u64();
  trashed.inode = InodeId{r.u64()};
  if (!r.done() || r.space() != Space::branch || r.table() != Table::trashed) {
    return not_a_key("the trash's");
  }
  return trashed;
}

}  // namespace starlane::meta
