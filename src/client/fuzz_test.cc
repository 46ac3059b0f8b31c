// What a dead daemon, or one of another build, left in memory, fuzzed (common/fuzz.h): the ledger
// with the values of its records, and the write arena; and lines of access logs. A reader takes
// what is whole, and goes on with what it took.
#include "common/fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>
#include <map>

#include "client/access_entry.h"
#include "client/blocks/map_source.h"
#include "client/node_cache/copy_record.h"
#include "client/read/file_maps.h"
#include "client/takeover/records.h"
#include "client/write/arena.h"
#include "client/write/replay.h"
#include "client/write/rig.h"
#include "placement/choose.h"

namespace starlane::client {
namespace {

constexpr Ledger::Kind kLastKind = Ledger::Kind::set;

/// A memfd that holds `bytes` at its front, and zeros up to `size`.
void fill(int fd, ByteSpan bytes, std::uint64_t size) {
  ASSERT_EQ(::ftruncate(fd, 0), 0);
  ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(size)), 0);
  ASSERT_EQ(::pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
}

std::string front_of(int fd, std::size_t bytes) {
  std::string front(bytes, '\0');
  EXPECT_EQ(::pread(fd, front.data(), bytes, 0), static_cast<ssize_t>(bytes));
  return front;
}

ListedPage random_page(Rng& rng) {
  ListedPage page;
  page.end = rng.one_in(2);
  for (std::uint64_t n = rng.below(5); n > 0; --n)
    page.names.push_back({std::string(1 + rng.below(20), static_cast<char>(rng.next())),
                          InodeId(rng.next()), static_cast<std::uint32_t>(rng.next()), rng.next()});
  return page;
}

ViewRecord random_view(Rng& rng) {
  ViewRecord view;
  view.target.volume = std::string(rng.below(9), 'v');
  view.target.image_name = std::string(rng.below(9), 'i');
  view.target.read_only = rng.one_in(2);
  view.branch = BranchId(rng.next());
  view.view = ViewId(static_cast<std::uint32_t>(rng.next()));
  view.frozen = rng.one_in(2);
  return view;
}

// ---- Values of records ----

bool page_comes_back(ByteSpan bytes) {
  const auto page = decode_page(bytes);
  if (!page) return false;
  const auto again = decode_page(encode(*page));
  EXPECT_TRUE(again && encode(*again) == encode(*page));
  EXPECT_EQ(encode(*page).size(), bytes.size());
  return true;
}

bool view_comes_back(ByteSpan bytes) {
  const auto view = decode_view(bytes);
  if (!view) return false;
  const auto again = decode_view(encode(*view));
  EXPECT_TRUE(again && encode(*again) == encode(*view));
  return true;
}

template <typename T>
bool plain(const std::vector<std::byte>& value) {
  return plain_of<T>(value).has_value();
}

bool change_comes_back(const std::vector<std::byte>& value) {
  const auto record = plain_of<SetRecord>(value);
  if (!record) return false;
  const SetRecord known = record_of(change_of(*record));  // without bits of a later build
  const SetRecord again = record_of(change_of(known));
  EXPECT_EQ(known.which, record->which & 31);
  EXPECT_EQ(std::memcmp(&known, &again, sizeof known), 0);
  return true;
}

bool value(ByteSpan bytes) {
  const std::vector<std::byte> owned(bytes.begin(), bytes.end());
  const bool any[] = {
      page_comes_back(bytes),        view_comes_back(bytes),         plain<FileRecord>(owned),
      plain<DirectoryRecord>(owned), plain<AppendRecord>(owned),     plain<LockRecord>(owned),
      plain<SuspectRecord>(owned),   plain<MovedRecord>(owned),      plain<LostRecord>(owned),
      plain<CopyRecord>(owned),      plain<CachedFileRecord>(owned), change_comes_back(owned)};
  return std::ranges::count(any, true) != 0;
}

TEST(Fuzz, ValuesOfTheLedger) {
  Fuzz fuzz("client-records");
  for (int i = 0; i < 20; ++i) {
    const ListedPage page = random_page(fuzz.rng());
    const auto back = decode_page(encode(page));
    ASSERT_TRUE(back);
    ASSERT_EQ(back->names.size(), page.names.size());
    for (std::size_t k = 0; k < page.names.size(); ++k) {
      EXPECT_EQ(back->names[k].name, page.names[k].name);
      EXPECT_EQ(back->names[k].inode, page.names[k].inode);
      EXPECT_EQ(back->names[k].ino, page.names[k].ino);
      EXPECT_EQ(back->names[k].type, page.names[k].type);
    }
    fuzz.add(ByteSpan(encode(page)));
    fuzz.add(ByteSpan(encode(random_view(fuzz.rng()))));
  }
  fuzz.add_plain(FileRecord{1, 2, 3, 1, 1, 0});
  fuzz.add_plain(SetRecord{.which = 31,
                           .mode = 04755,
                           .uid = 1,
                           .gid = 2,
                           .atime_seconds = -5,
                           .mtime_seconds = 7,
                           .atime_nanoseconds = 8,
                           .mtime_nanoseconds = 9});
  fuzz.run([](ByteSpan bytes) { return value(bytes); });
}

// ---- The ledger ----

using Contents = std::map<std::tuple<Ledger::Kind, std::uint64_t, std::uint64_t>, std::string>;

Contents contents_of(Ledger& ledger) {
  Contents all;
  for (int kind = 0; kind <= static_cast<int>(kLastKind); ++kind)
    for (const Ledger::Entry& entry : ledger.all(static_cast<Ledger::Kind>(kind))) {
      value(entry.value);
      all[{entry.key.kind, entry.key.a, entry.key.b}] = text_of(entry.value);
    }
  return all;
}

std::string some_ledger(Rng& rng) {
  const UniqueFd fd = Ledger::create().value();
  const auto ledger = Ledger::open(fd.get()).value();
  for (int i = 0; i < 20; ++i) {
    const Ledger::Key key{
        static_cast<Ledger::Kind>(1 + rng.below(static_cast<std::uint64_t>(kLastKind))),
        rng.below(3), rng.below(3)};
    if (rng.one_in(4))
      ledger->erase(key);
    else
      EXPECT_TRUE(
          ledger->put(key, rng.one_in(2) ? encode(random_page(rng)) : encode(random_view(rng)))
              .ok());
  }
  return front_of(fd.get(), LedgerHeader::kBytes + 2048);
}

/// Opened, changed, and opened by the next one: it has what there was, and the changes.
bool goes_on(int fd, Rng& rng) {
  Contents wanted;
  {
    const auto ledger = Ledger::open(fd);
    if (!taken(ledger)) return false;
    wanted = contents_of(**ledger);
    for (int i = 0; i < 4; ++i) {
      const Ledger::Key key{static_cast<Ledger::Kind>(1 + rng.below(16)), rng.below(3), 0};
      const std::string text(rng.below(rng.one_in(50) ? 600'000 : 100), 'x');
      if (!(*ledger)->put(key, bytes_of(text)).ok()) continue;
      wanted[{key.kind, key.a, key.b}] = text;
    }
    EXPECT_TRUE(contents_of(**ledger) == wanted);
  }
  const auto next = Ledger::open(fd);
  EXPECT_TRUE(next.ok()) << next.status().to_string();
  if (next.ok()) {
    EXPECT_TRUE(contents_of(**next) == wanted);
  }
  return true;
}

TEST(Fuzz, TheLedger) {
  Fuzz fuzz("client-ledger");
  const UniqueFd fd(::memfd_create("fuzz-ledger", MFD_CLOEXEC));
  // The page of the header is mostly reserved: an input is the header, then the log.
  constexpr std::size_t kHeader = sizeof(LedgerHeader);
  for (int i = 0; i < 10; ++i) {
    const std::string whole = some_ledger(fuzz.rng());
    fuzz.add(whole.substr(0, kHeader) + whole.substr(LedgerHeader::kBytes));
  }
  fuzz.set_allowance(8_MiB);  // what is put below is up to 2.4 MB
  fuzz.run([&](ByteSpan input) {
    std::string whole(text_of(input.first(std::min(kHeader, input.size()))));
    whole.resize(LedgerHeader::kBytes);
    if (input.size() > kHeader) whole += text_of(input.subspan(kHeader));
    fill(fd.get(), bytes_of(whole), LedgerHeader::kBytes + 1_MiB);
    return goes_on(fd.get(), fuzz.rng());
  });
}

// ---- The arena ----

constexpr std::uint64_t kArenaData = kBlockSize;

std::string some_arena(Rng& rng) {
  ArenaHeader header;
  header.records = 8;
  header.data_offset = kHugePage;
  header.data_bytes = kArenaData;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  for (std::uint64_t i = 0; i < header.records; ++i) {
    const ArenaRecord record{rng.one_in(4) ? ArenaRecord::kFree : ArenaRecord::kLive,
                             0,
                             7,
                             1 + rng.below(2),
                             rng.below(200'000'000),
                             rng.below(100'000),
                             rng.below(kArenaData - 100'000),
                             rng.below(100),
                             0};
    bytes.append(reinterpret_cast<const char*>(&record), sizeof record);
  }
  return bytes;
}

/// Into a client, which answers for each extent that it took.
bool replays(int fd, Rig& rig) {
  std::uint64_t extents = 0, bytes = 0;
  const auto replayed = replay_arena(fd, [&](const ReplayedExtent& extent) {
    EXPECT_LE(extent.offset, static_cast<std::uint64_t>(INT64_MAX) - extent.bytes.size());
    ++extents;
    bytes += extent.bytes.size();
    if (extent.bytes.size() > 1_MiB || bytes > 8_MiB) return Status();
    const std::byte last = extent.bytes.back();  // all of it is there
    EXPECT_EQ(last, std::byte{0});
    return rig.io->write({{BranchId(7), InodeId(1)}, {}, extent.offset, extent.bytes, false});
  });
  if (!taken(replayed)) return extents != 0;
  EXPECT_EQ(replayed->extents, extents);
  EXPECT_EQ(replayed->bytes, bytes);
  return extents != 0;
}

TEST(Fuzz, TheArena) {
  Fuzz fuzz("client-arena");
  const UniqueFd fd(::memfd_create("fuzz-arena", MFD_CLOEXEC));
  constexpr std::size_t kHeader = sizeof(ArenaHeader);
  for (int i = 0; i < 10; ++i) fuzz.add(some_arena(fuzz.rng()));
  fuzz.set_allowance(8_MiB);
  Rig rig;
  rig.create(1);
  fuzz.run([&](ByteSpan input) {
    std::string whole(text_of(input.first(std::min(kHeader, input.size()))));
    whole.resize(ArenaHeader::kRecordsOffset);
    if (input.size() > kHeader) whole += text_of(input.subspan(kHeader));
    fill(fd.get(), bytes_of(whole), kHugePage + kArenaData);
    const bool any = replays(fd.get(), rig);
    if (any) (void)rig.io->flush({BranchId(7), InodeId(1)}, Safety::accepted);
    return any;
  });
}

// ---- What the metadata server answers ----

class SaidMeta final : public NoMeta {
 public:
  Status file_map(const Call&, const pb::FileMapRequest&, pb::FileMapReply* reply) override {
    return parse(*reply);
  }
  Status cluster_map(const Call&, const pb::Empty&, pb::ClusterMap* reply) override {
    return parse(*reply);
  }
  ByteSpan said;

 private:
  Status parse(google::protobuf::MessageLite& reply) const {
    return reply.ParseFromArray(said.data(), static_cast<int>(said.size()))
               ? Status()
               : Status(Errc::protocol, "not a message");
  }
};

std::string some_map(Rng& rng) {
  pb::FileMapReply reply;
  reply.set_version(3);
  reply.set_length(rng.below(2 * kChunkSize));
  for (std::uint32_t index = 0; index < 2; ++index) {
    pb::Chunk* chunk = reply.add_chunks();
    chunk->set_index(index);
    for (int i = 0; i < 4; ++i) {
      pb::SliceEntry* entry = chunk->add_entries();
      entry->set_kind(static_cast<pb::SliceEntry::Kind>(rng.below(4)));
      entry->set_position(static_cast<std::uint32_t>(rng.below(1000)));
      entry->set_length(static_cast<std::uint32_t>(1 + rng.below(100)));
      entry->set_slice(rng.next());
      entry->set_slice_length(1000);
      if (entry->kind() == pb::SliceEntry::INLINE) entry->set_inline_data(std::string(200, 'x'));
    }
  }
  return reply.SerializeAsString();
}

/// Every range of it lies in its chunk, and shows bytes that its slice has.
bool map_is_sound(FileMaps& maps, const Interrupts::Scope& scope) {
  constexpr std::uint64_t kEnd = 2 * kChunkSize;
  const FileKey file{BranchId(7), InodeId(1)};
  maps.invalidate(file);
  const auto view = maps.get(file, {3, kEnd}, 0, kEnd, scope);
  if (!taken(view)) return false;
  EXPECT_EQ(view->chunks.size(), 2u);
  for (const auto& chunk : view->chunks) {
    std::uint64_t end = 0;
    chunk->visit(0, ~std::uint64_t{0},
                 [&](std::uint64_t begin, std::uint64_t stop, const Segment& s) {
                   EXPECT_LE(end, begin);
                   end = stop;
                   const bool is_inline = s.kind == pb::SliceEntry::INLINE;
                   const std::uint64_t length = is_inline ? s.inline_data->size() : s.slice_length;
                   if (s.kind != pb::SliceEntry::ZERO) {
                     EXPECT_LE(s.offset + (stop - begin), length);
                   }
                 });
    EXPECT_LE(end, kChunkSize);
  }
  return true;
}

TEST(Fuzz, WhatTheMetadataServerAnswers) {
  Fuzz fuzz("client-replies");
  for (int i = 0; i < 10; ++i) fuzz.add(some_map(fuzz.rng()));
  pb::ClusterMap cluster;
  cluster.set_epoch(2);
  for (std::uint32_t id = 1; id < 3; ++id) {
    pb::Target* target = cluster.add_targets();
    target->set_id(id);
    target->set_endpoint("tcp:host:1");
    target->set_weight(1);
    target->set_state("up");
  }
  fuzz.add(cluster.SerializeAsString());
  fuzz.set_allowance(1_MiB);
  google::protobuf::SetLogHandler(nullptr);  // of texts that are no UTF-8
  SaidMeta meta;
  FakeAttachments attachments;
  Interrupts interrupts;
  const Interrupts::Scope scope(interrupts, 0);
  FileMaps maps(meta, attachments, 1'000);
  fuzz.run([&](ByteSpan bytes) {
    meta.said = bytes;
    const bool files = map_is_sound(maps, scope);
    MapSource source(meta);
    const auto map = source.get(scope);
    if (!taken(map)) return files;
    EXPECT_TRUE(validate(**map).ok());
    for (const TargetId target : choose(**map, BranchId(1), SliceId(2), 3, 2)) {
      EXPECT_NE((*map)->find(target), nullptr);
    }
    return true;
  });
}

// ---- Access logs ----

TEST(Fuzz, LinesOfAnAccessLog) {
  Fuzz fuzz("client-access-log");
  Rng& rng = fuzz.rng();
  for (int i = 0; i < 20; ++i) {
    AccessEntry entry;
    entry.at = {static_cast<std::int64_t>(rng.next()),
                static_cast<std::uint32_t>(rng.below(1'000'000'000))};
    entry.operation = "read";
    for (std::uint64_t n = rng.below(30); n > 0; --n) entry.path += static_cast<char>(rng.next());
    entry.offset = rng.next();
    entry.error = 5;
    entry.took = Nanoseconds(rng.below(1'000'000'000) * 100);
    std::string line = to_line(entry);
    ASSERT_EQ(line.back(), '\n');
    line.pop_back();
    const auto back = parse_access_line(line);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(back->path, entry.path);
    EXPECT_EQ(back->took, entry.took);
    EXPECT_EQ(back->at, entry.at);
    fuzz.add(line);
  }
  fuzz.run([](ByteSpan bytes) {
    const auto entry = parse_access_line(text_of(bytes));
    if (!taken(entry)) return false;
    std::string line = to_line(*entry);
    line.pop_back();
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const auto again = parse_access_line(line);
    EXPECT_TRUE(again.ok() && to_line(*again) == line + "\n") << line;
    return true;
  });
}

}  // namespace
}  // namespace starlane::client
