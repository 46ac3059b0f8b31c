// What a target's files and index say, fuzzed (common/fuzz.h): headers of records, values of the
// index, identities and names of segments; then whole segments, out of which a store is rebuilt.
#include "common/fuzz.h"

#include "block/fixture.h"
#include "block/segment_log.h"
#include "common/log.h"

namespace starlane::block {
namespace {

// docs/formats.md, "Block store": where a record's header has its number of checksums and its
// check.
constexpr std::size_t kUnitsAt = 84, kCheckAt = 124;
constexpr std::uint32_t kMagic = 0x52424c53;

RecordHeader random_header(Rng& rng) {
  RecordHeader header;
  header.kind = rng.one_in(4) ? RecordKind::fences : RecordKind::block;
  header.salt = rng.next();
  header.sequence = rng.next();
  header.block = {BranchId(rng.next()), SliceId(rng.next()),
                  static_cast<std::uint32_t>(rng.next())};
  Entry& entry = header.entry;
  entry.segment = rng.next();
  entry.offset = round_down(rng.next(), kPage);
  entry.length =
      static_cast<std::uint32_t>(1 + rng.below(rng.one_in(2) ? kSmallBlock : kBlockSize));
  entry.stored_length = entry.length;
  entry.key_id = static_cast<std::uint32_t>(rng.next());
  for (std::uint64_t n = divide_up(entry.length, kChecksumUnit); n > 0; --n)
    entry.checksums.push_back(static_cast<std::uint32_t>(rng.next()));
  set_shape(entry);
  return header;
}

bool same(const RecordHeader& x, const RecordHeader& y) {
  return x.kind == y.kind && x.salt == y.salt && x.sequence == y.sequence && x.block == y.block &&
         x.entry == y.entry;
}

/// The check of a header is made right, so that what is behind it is looked at.
void make_right(MutableByteSpan page) {
  if (page.size() < kHeaderBytes) return;
  const auto units = load_little<std::uint32_t>(page.data() + kUnitsAt);
  const std::size_t checksums =
      std::min<std::size_t>(4 * std::size_t{units}, page.size() - kHeaderBytes);
  store_little(page.data() + kCheckAt, crc32c(ByteSpan(page).subspan(kHeaderBytes, checksums),
                                              crc32c(ByteSpan(page).first(kCheckAt))));
}

bool record(ByteSpan bytes) {
  const auto header = decode(bytes);
  if (!taken(header)) return false;
  EXPECT_LE(header->entry.payload_offset + std::uint64_t{header->entry.stored_length},
            header->entry.record_length);
  EXPECT_LE(header->entry.record_length, kMostRecord);
  const auto again = decode(page_of(*header));
  EXPECT_TRUE(again.ok() && same(*header, *again));
  return true;
}

bool index_value(ByteSpan bytes) {
  const auto entry = decode_entry(text_of(bytes));
  if (!taken(entry)) return false;
  EXPECT_EQ(encode_entry(*entry).size(), bytes.size());
  const auto again = decode_entry(encode_entry(*entry));
  EXPECT_TRUE(again.ok() && *again == *entry);
  return true;
}

bool identity(const std::string& text) {
  const auto decoded = decode_identity(text);
  if (!taken(decoded)) return false;
  EXPECT_EQ(*decode_identity(encode(*decoded)), *decoded);
  return true;
}

bool identity_made_right(std::string text) {
  const std::size_t end = text.find("crc32c ");
  if (end == std::string::npos) return false;
  char check[9];
  std::snprintf(check, sizeof check, "%08x", crc32c(bytes_of(text).first(end)));
  return identity(text.substr(0, end) + "crc32c " + check + "\n");
}

bool segment_is_named(ByteSpan bytes) {
  const std::string name(text_of(bytes));
  const std::uint64_t number = segment_number(name);
  if (number != 0) {
    EXPECT_EQ(segment_name(number), name);
  }
  return number != 0;
}

/// A cursor names the block behind which a listing goes on.
bool cursor(Store& store, ByteSpan bytes) {
  const auto listing = store.list({}, kTarget, std::string(text_of(bytes)), 5);
  return taken(listing) && !bytes.empty();
}

TEST(Fuzz, RecordsAndRows) {
  Fuzz fuzz("block");
  MemDevice device({.seed = 1});
  const TempDirectory index;
  const auto store = open_or_die(options_for(device, index.path()));
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(put(*store, block_id(1, i), 10).ok());
  fuzz.add(store->list({}, kTarget, "", 1)->cursor);
  for (int i = 0; i < 30; ++i) {
    RecordHeader header = random_header(fuzz.rng());
    const auto page = page_of(header);
    const auto back = decode(page);
    ASSERT_TRUE(back.ok() && same(*back, header)) << back.status().to_string();
    fuzz.add(ByteSpan(page));
    if (header.entry.length <= kSmallBlock) header.entry.small.assign(header.entry.length, 'x');
    const std::string row = encode_entry(header.entry);
    ASSERT_EQ(decode_entry(row).value(), header.entry);
    fuzz.add(row);
  }
  const Identity owner{"c0ffee-1", TargetId(12), 0xabcdef};
  ASSERT_EQ(decode_identity(encode(owner)).value(), owner);
  fuzz.add(encode(owner));
  fuzz.add(segment_name(42));
  fuzz.run([&](ByteSpan bytes) {
    std::vector<std::byte> right(bytes.begin(), bytes.end());
    right.resize(std::max<std::size_t>(right.size(), kPage));
    make_right(right);
    const bool any[] = {record(bytes),
                        record(right),
                        index_value(bytes),
                        identity(std::string(text_of(bytes))),
                        identity_made_right(std::string(text_of(bytes))),
                        segment_is_named(bytes),
                        cursor(*store, bytes)};
    return std::ranges::count(any, true) != 0;
  });
}

/// A directory of a target, as one process left it.
std::map<std::string, std::string> files_of_a_target() {
  MemDevice device({.seed = 1});
  const TempDirectory index;
  {
    const auto store = open_or_die(options_for(device, index.path()));
    for (const std::size_t length : {std::size_t{10}, std::size_t{5000}, std::size_t{9000}})
      EXPECT_TRUE(put(*store, block_id(length), length).ok());
    EXPECT_TRUE(store->remove_slice({}, kTarget, BranchId(7), SliceId(5000)).ok());
    EXPECT_TRUE(put(*store, block_id(20), 70'000, Safety::durable).ok());
  }
  std::map<std::string, std::string> files;
  device.crash(MemDevice::Crash::kill);
  const auto disk = device.disk();
  const auto names = disk->list();
  for (const std::string& name : *names) files[name] = disk->load(name).value();
  return files;
}

/// Whatever lies there: the store opens or says why not, and what it lists can be asked for.
bool reopens(const std::map<std::string, std::string>& files) {
  MemDevice device({.seed = 1});
  for (const auto& [name, bytes] : files) device.overwrite(name, bytes);
  const TempDirectory index;
  const auto store = Store::open(options_for(device, index.path()));
  if (!taken(store)) return false;
  const auto blocks = list_all(**store);
  for (const BlockInfo& info : blocks) {
    PlainSink out;
    const auto got = (*store)->get({}, {kTarget, info.block, 0, info.length, true}, out);
    if (got.ok()) {
      EXPECT_EQ(out.bytes().size(), info.length);
    }
  }
  (void)verify_all(**store);
  EXPECT_TRUE(put(**store, block_id(77'777, 1), 4000).ok());
  EXPECT_TRUE(check(**store, block_id(77'777, 1), 4000).ok());
  return !blocks.empty();
}

constexpr std::size_t kHead = kHeaderBytes + 4 * 4;  // with the checksums of a few units

/// The heads of all pages, one after the other; those that begin a record are what counts.
std::string heads_of(const std::string& segment) {
  std::string heads;
  for (std::size_t at = 0; at < segment.size(); at += kPage) heads += segment.substr(at, kHead);
  return heads;
}

/// The segment with these heads, whose checks are right.
std::string with_heads(std::string segment, ByteSpan heads) {
  for (std::size_t at = 0; at + kPage <= segment.size() && !heads.empty(); at += kPage) {
    const std::string_view head = text_of(heads.first(std::min(kHead, heads.size())));
    segment.replace(at, head.size(), head);
    heads = heads.subspan(head.size());
    const auto page = std::as_writable_bytes(std::span(segment)).subspan(at, kPage);
    if (load_little<std::uint32_t>(page.data()) == kMagic) make_right(page);
  }
  return segment;
}

TEST(Fuzz, ASegmentWhoseIndexIsLost) {
  start_logging({.role = "fuzz", .file = "", .level = "warn"});  // not of each replay
  auto files = files_of_a_target();
  const std::string name = segment_name(1);
  ASSERT_TRUE(files.contains(name)) << files.size();
  const std::string segment = files[name];
  Fuzz fuzz("block-segments");
  fuzz.add(heads_of(segment));
  fuzz.set_allowance(64_MiB);  // a store's own buffers and RocksDB
  fuzz.run([&](ByteSpan heads) {
    files[name] = with_heads(segment, heads);
    return reopens(files);
  });
}

}  // namespace
}  // namespace starlane::block
