#include "block/index.h"

#include <array>

#include "common/clock.h"

namespace starlane::block {
namespace {

// First byte of a key. B: block, F: fence, P: removal that is not done, S: segment, T: totals.
constexpr char kBlock = 'B', kFence = 'F', kPending = 'P', kSegment = 'S', kTotals = 'T';
constexpr std::uint8_t kFormat = 1;

#pragma pack(push, 1)
struct EntryWire {
  std::uint8_t format;
  std::uint8_t flags;
  std::uint8_t codec;
  std::uint8_t cipher;
  std::uint64_t segment;
  std::uint64_t offset;
  std::uint32_t record_length;
  std::uint32_t payload_offset;
  std::uint32_t length;
  std::uint32_t stored_length;
  std::uint32_t key_id;
  std::uint8_t unit_log2;
  std::uint8_t reserved;
  std::uint16_t units;  // as many checksums follow, then the block if it is small
};
struct MarkWire {
  std::uint8_t format;
  std::uint8_t flags;  // 1: sealed
  std::uint64_t indexed_to;
  std::uint64_t live_bytes;
};
struct TotalsWire {
  std::uint8_t format;
  std::uint8_t flags;
  std::uint64_t blocks;
  std::uint64_t bytes;
};
struct FenceWire {
  std::uint8_t format;
  std::uint8_t flags;
  std::int64_t since;  // seconds since 1970
};
#pragma pack(pop)
static_assert(sizeof(EntryWire) == 44 && sizeof(MarkWire) == 18 && sizeof(TotalsWire) == 18 &&
              sizeof(FenceWire) == 10);

template <typename Wire>
std::string to_bytes(const Wire& wire) {
  return std::string(reinterpret_cast<const char*>(&wire), sizeof wire);
}

template <typename Wire>
Result<Wire> from_bytes(std::string_view bytes) {
  Wire wire;
  if (bytes.size() < sizeof wire) return Status(Errc::corrupt, "a row of the index is too short");
  std::memcpy(&wire, bytes.data(), sizeof wire);
  if (wire.format == kFormat) return wire;
  return Status(Errc::unsupported,
                "a row of the index is of format " + std::to_string(wire.format));
}

void append_big(std::string& key, std::uint64_t value) {
  std::array<char, 8> bytes;
  store_big64(bytes.data(), value);
  key.append(bytes.data(), bytes.size());
}

std::string key_of(char table, const SliceKey& slice) {
  std::string key(1, table);
  append_big(key, slice.owner.value);
  append_big(key, slice.slice.value);
  return key;
}

std::string key_of(const BlockId& block) {
  std::string key = key_of(kBlock, SliceKey{block.owner, block.slice});
  const std::uint32_t big = __builtin_bswap32(block.index);
  key.append(reinterpret_cast<const char*>(&big), sizeof big);
  return key;
}

std::string key_of_segment(std::uint64_t number) {
  std::string key(1, kSegment);
  append_big(key, number);
  return key;
}

SliceKey slice_of(std::string_view key) {
  return {BranchId(load_big64(key.data() + 1)), SliceId(load_big64(key.data() + 9))};
}

/// The first key behind all that begin with `key`.
std::string behind(std::string key) {
  while (!key.empty() && static_cast<unsigned char>(key.back()) == 0xff) key.pop_back();
  SL_CHECK(!key.empty());  // it begins with a letter
  ++key.back();
  return key;
}

Status bad_key() { return Status(Errc::corrupt, "a key of the index has an impossible length"); }

}  // namespace

std::string encode_entry(const Entry& entry) {
  EntryWire wire{};
  wire.format = kFormat;
  wire.codec = entry.codec;
  wire.cipher = entry.cipher;
  wire.segment = entry.segment;
  wire.offset = entry.offset;
  wire.record_length = entry.record_length;
  wire.payload_offset = entry.payload_offset;
  wire.length = entry.length;
  wire.stored_length = entry.stored_length;
  wire.key_id = entry.key_id;
  wire.unit_log2 = entry.unit_log2;
  wire.units = static_cast<std::uint16_t>(entry.checksums.size());
  std::string value = to_bytes(wire);
  value.append(reinterpret_cast<const char*>(entry.checksums.data()), 4 * entry.checksums.size());
  return value + entry.small;
}

Result<Entry> decode_entry(std::string_view value) {
  const auto wire = SL_TRY(from_bytes<EntryWire>(value));
  value.remove_prefix(sizeof wire);
  if (wire.codec != 0 || wire.cipher != 0) {
    return Status(Errc::unsupported, "a block uses a codec or cipher of a newer version");
  }
  Entry entry;
  entry.segment = wire.segment;
  entry.offset = wire.offset;
  entry.length = wire.length;
  entry.stored_length = wire.stored_length;
  entry.key_id = wire.key_id;
  entry.unit_log2 = wire.unit_log2;
  const bool possible =
      wire.length > 0 && wire.length <= kBlockSize && wire.length == wire.stored_length &&
      wire.unit_log2 == kUnitLog2 && wire.units == divide_up(wire.length, kChecksumUnit) &&
      wire.offset % kPage == 0 &&
      value.size() == 4u * wire.units + (wire.length <= kSmallBlock ? wire.length : 0);
  if (!possible) return Status(Errc::corrupt, "a row of the index is damaged");
  entry.checksums.resize(wire.units);
  std::memcpy(entry.checksums.data(), value.data(), 4u * wire.units);
  entry.small = value.substr(4u * wire.units);
  set_shape(entry);
  if (entry.payload_offset == wire.payload_offset && entry.record_length == wire.record_length) {
    return entry;
  }
  return Status(Errc::corrupt, "a row of the index is damaged");
}

void IndexBatch::put(const BlockId& block, const Entry& entry) {
  batch_.put(key_of(block), encode_entry(entry));
}
void IndexBatch::erase(const BlockId& block) { batch_.del(key_of(block)); }
void IndexBatch::put(std::uint64_t segment, const SegmentMark& mark) {
  const std::uint8_t flags = mark.sealed ? 1 : 0;
  batch_.put(key_of_segment(segment),
             to_bytes(MarkWire{kFormat, flags, mark.indexed_to, mark.live_bytes}));
}
void IndexBatch::erase_segment(std::uint64_t segment) { batch_.del(key_of_segment(segment)); }
void IndexBatch::put(const Totals& totals) {
  batch_.put(std::string(1, kTotals),
             to_bytes(TotalsWire{kFormat, 0, totals.blocks, totals.bytes}));
}
void IndexBatch::fence(const SliceKey& slice, bool pending) {
  const std::string value = to_bytes(FenceWire{kFormat, 0, system_clock().wall().seconds});
  batch_.put(key_of(kFence, slice), value);
  if (pending) batch_.put(key_of(kPending, slice), value);
}
void IndexBatch::end_pending(const SliceKey& slice) { batch_.del(key_of(kPending, slice)); }

Result<std::unique_ptr<Index>> Index::open(const std::string& directory, std::uint64_t cache_bytes,
                                           bool& fresh) {
  table::Options options;
  options.directory = directory;
  options.create = false;
  options.cache_bytes = cache_bytes;
  auto table = table::Table::open(options);
  fresh = table.code() == Errc::not_found;
  if (fresh) {
    options.create = true;
    table = table::Table::open(options);
  }
  // On a line of its own: leaving in the middle of a new-expression would leak what it allocated.
  auto opened = SL_TRY(std::move(table));
  return std::unique_ptr<Index>(new Index(std::move(opened)));
}

Result<EntryPtr> Index::find(const BlockId& block) const {
  const auto value = SL_TRY(table_->get(key_of(block)));
  if (!value) return Status(Errc::not_found, "no such block");
  return EntryPtr(std::make_shared<Entry>(SL_TRY(decode_entry(*value))));
}

Result<Index::PutState> Index::state_of(const BlockId& block) const {
  const std::string fence = key_of(kFence, {block.owner, block.slice}), row = key_of(block);
  const auto values = SL_TRY(table_->multi_get({row, fence}));
  PutState state;
  state.fenced = values[1].has_value();
  if (values[0]) state.entry = std::make_shared<Entry>(SL_TRY(decode_entry(*values[0])));
  return state;
}

Result<bool> Index::is_fenced(const SliceKey& slice, bool& pending) const {
  const std::string fence = key_of(kFence, slice), removal = key_of(kPending, slice);
  const auto values = SL_TRY(table_->multi_get({fence, removal}));
  pending = values[1].has_value();
  return values[0].has_value();
}

std::string Index::first_after(const std::optional<BlockId>& after) {
  return after ? key_of(*after) + '\0' : std::string(1, kBlock);
}

Result<std::vector<std::pair<BlockId, EntryPtr>>> Index::page(const std::string& first,
                                                              const std::string& last,
                                                              std::size_t limit) const {
  std::vector<std::pair<BlockId, EntryPtr>> rows;
  auto it = table_->iterate({first, last});
  for (; it.valid() && rows.size() < limit; it.next()) {
    const std::string_view key = it.key();
    if (key.size() != 21) return bad_key();
    const SliceKey slice = slice_of(key);
    const std::uint32_t index = __builtin_bswap32(load_little<std::uint32_t>(key.data() + 17));
    // A damaged row is somebody's block: it is shown, without an entry, not hidden.
    auto entry = decode_entry(it.value());
    rows.emplace_back(BlockId{slice.owner, slice.slice, index},
                      entry.ok() ? std::make_shared<Entry>(std::move(*entry)) : nullptr);
  }
  SL_TRY(it.status());
  return rows;
}

Result<std::vector<std::pair<BlockId, EntryPtr>>> Index::blocks_of(const SliceKey& slice) const {
  const std::string first = key_of(kBlock, slice);
  return page(first, behind(first), SIZE_MAX);
}

Result<std::map<std::uint64_t, SegmentMark>> Index::segments() const {
  std::map<std::uint64_t, SegmentMark> marks;
  auto it = table_->iterate({std::string(1, kSegment), behind(std::string(1, kSegment))});
  for (; it.valid(); it.next()) {
    if (it.key().size() != 9) return bad_key();
    const auto wire = SL_TRY(from_bytes<MarkWire>(it.value()));
    marks[load_big64(it.key().data() + 1)] = {wire.indexed_to, wire.live_bytes, wire.flags == 1};
  }
  SL_TRY(it.status());
  return marks;
}

Result<Totals> Index::totals() const {
  const auto value = SL_TRY(table_->get(std::string(1, kTotals)));
  if (!value) return Totals{};
  const auto wire = SL_TRY(from_bytes<TotalsWire>(*value));
  return Totals{wire.blocks, wire.bytes};
}

Result<std::vector<SliceKey>> Index::pending_removals() const {
  std::vector<SliceKey> slices;
  auto it = table_->iterate({std::string(1, kPending), behind(std::string(1, kPending))});
  for (; it.valid(); it.next()) {
    if (it.key().size() != 17) return bad_key();
    slices.push_back(slice_of(it.key()));
  }
  SL_TRY(it.status());
  return slices;
}

Status Index::apply(const IndexBatch& batch) { return table_->write(batch.batch_, {.sync = true}); }

}  // namespace starlane::block
