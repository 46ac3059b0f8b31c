// The ledger's layout and that of its values, byte by byte; what one process leaves to the next
// wherever it dies; and what a reader refuses.
#include "client/takeover/ledger.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "client/node_cache/copy_record.h"
#include "client/takeover/records.h"
#include "common/hex.h"
#include "common/rng.h"

namespace starlane::client {
namespace {

using Kind = Ledger::Kind;

std::string text(const std::optional<std::vector<std::byte>>& value) {
  return value ? std::string(text_of(*value)) : "none";
}

TEST(LedgerFormat, GoldenBytes) {
  LedgerHeader header;
  header.current = 1;
  header.generation = 0x0203;
  header.regions[0] = {0x1000, 0x100000};
  header.regions[1] = {0x101000, 0x200000};
  EXPECT_EQ(hex_of(header),
            "53544c4c47445231"
            "01000000"
            "01000000"
            "0302000000000000"
            "0010000000000000"
            "0000100000000000"
            "0010100000000000"
            "0000200000000000"
            "0000000000000000");
  const LedgerRecord record{LedgerRecord::kLive, 24, 4, {}, 0x0506, 0x0708};
  EXPECT_EQ(hex_of(record),
            "01000000"
            "18000000"
            "0400"
            "000000000000"
            "0605000000000000"
            "0807000000000000");
}

TEST(LedgerFormat, NumbersOfKindsStay) {
  const std::pair<Kind, int> kinds[] = {
      {Kind::session, 1},       {Kind::mount, 2},        {Kind::view, 3},         {Kind::file, 4},
      {Kind::directory, 5},     {Kind::page, 6},         {Kind::unlinked, 7},     {Kind::append, 8},
      {Kind::moved, 9},         {Kind::backing, 10},     {Kind::cached_file, 11}, {Kind::copy, 12},
      {Kind::record_owner, 13}, {Kind::flock_owner, 14}, {Kind::suspect, 15},     {Kind::lost, 16}};
  for (const auto& [kind, number] : kinds) EXPECT_EQ(static_cast<int>(kind), number);
}

TEST(LedgerFormat, GoldenBytesOfValues) {
  EXPECT_EQ(hex_of(FileRecord{0x0102, 0x0304, 0x05, 1, 1, 0}),
            "0201000000000000"
            "0403000000000000"
            "05000000"
            "01"
            "01"
            "0000");
  EXPECT_EQ(hex_of(DirectoryRecord{1, 2}), "01000000000000000200000000000000");
  EXPECT_EQ(hex_of(AppendRecord{3}), "0300000000000000");
  EXPECT_EQ(hex_of(LockRecord{4}), "0400000000000000");
  EXPECT_EQ(hex_of(SuspectRecord{5, 0}), "0500000000000000");
  EXPECT_EQ(hex_of(MovedRecord{6}), "0600000000000000");
  EXPECT_EQ(hex_of(LostRecord{7, 0}), "0700000000000000");
  EXPECT_EQ(hex_of(CachedFileRecord{1, 2, 3, 0}), "0102030000000000");
  EXPECT_EQ(hex_of(CopyRecord{1, 2, 3}), "010000000000000002000000000000000300000000000000");
  ViewRecord view;
  view.target.volume = "work";
  view.target.read_only = true;
  view.branch = BranchId(7);
  view.view = ViewId(9);
  EXPECT_EQ(hex(encode(view)),
            "0700000000000000"
            "09000000"
            "00"
            "01"
            "0400776f726b"
            "0000"
            "0000");
  ListedPage page;
  page.end = true;
  page.names.push_back({.name = "a", .inode = InodeId(2), .type = 8, .ino = 3});
  EXPECT_EQ(hex(encode(page)),
            "01"
            "0200000000000000"
            "0300000000000000"
            "08000000"
            "010061");
}

TEST(LedgerFormat, ValuesAreReadAsTheyWereWritten) {
  ViewRecord view;
  view.target.image_name = "imagenet";
  view.target.image_version = "1.0";
  view.branch = BranchId(7);
  view.view = ViewId(9);
  view.frozen = true;
  const auto again = decode_view(encode(view));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->target, view.target);
  EXPECT_EQ(again->branch, view.branch);
  EXPECT_EQ(again->view, view.view);
  EXPECT_TRUE(again->frozen);
  EXPECT_EQ(plain_of<AppendRecord>(std::vector<std::byte>(7)), std::nullopt);
  EXPECT_TRUE(plain_of<AppendRecord>(std::vector<std::byte>(16))) << "a later build's is longer";
}

TEST(LedgerFormat, DecodersMeetBytesOfEveryKind) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes(rng.below(60));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.below(i % 2 == 0 ? 4 : 256));
    static_cast<void>(decode_view(bytes));
    static_cast<void>(decode_page(bytes));
  }
}

class LedgerOf : public ::testing::Test {
 protected:
  LedgerOf() : fd_(std::move(Ledger::create()).value()) { next(); }

  void next() {
    ledger_.reset();  // its process is gone
    ledger_ = std::move(Ledger::open(fd_.get())).value();
  }
  void put(Kind kind, std::uint64_t a, std::string_view value) {
    ASSERT_TRUE(ledger_->put({kind, a}, bytes_of(value)).ok());
  }
  LedgerHeader header() {
    LedgerHeader header;
    EXPECT_EQ(::pread(fd_.get(), &header, sizeof header, 0), ssize_t{sizeof header});
    return header;
  }
  void write(std::uint64_t at, ByteSpan bytes) {
    ASSERT_EQ(::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(bytes.size()));
  }
  template <typename T>
  void write_value(std::uint64_t at, const T& value) {
    write(at, std::as_bytes(std::span(&value, 1)));
  }

  const UniqueFd fd_;
  std::unique_ptr<Ledger> ledger_;
};

TEST_F(LedgerOf, TheNextProcessFindsWhatWasWritten) {
  EXPECT_FALSE(ledger_->taken_over());
  put(Kind::file, 1, "one");
  put(Kind::file, 2, "two");
  put(Kind::directory, 1, "");
  put(Kind::file, 1, "uno");
  ledger_->erase({Kind::file, 2});
  ledger_->erase({Kind::file, 3});
  next();
  EXPECT_TRUE(ledger_->taken_over());
  EXPECT_EQ(ledger_->generation(), 2U);
  EXPECT_EQ(text(ledger_->get({Kind::file, 1})), "uno");
  EXPECT_EQ(text(ledger_->get({Kind::file, 2})), "none");
  EXPECT_EQ(text(ledger_->get({Kind::directory, 1})), "");
  EXPECT_EQ(ledger_->all(Kind::file).size(), 1U);
}

TEST_F(LedgerOf, AFullRegionIsLeftWithoutWhatIsDead) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  std::map<std::uint64_t, std::string> model;
  for (int i = 0; i < 60'000; ++i) {
    const std::uint64_t key = rng.below(500);
    if (rng.below(4) == 0) {
      ledger_->erase({Kind::page, key});
      model.erase(key);
    } else {
      model[key] = std::string(rng.below(300), static_cast<char>('a' + i % 26));
      put(Kind::page, key, model[key]);
    }
    if (i % 9'000 == 0) next();
  }
  next();
  const auto all = ledger_->all(Kind::page);
  ASSERT_EQ(all.size(), model.size());
  auto expected = model.begin();
  for (const Ledger::Entry& entry : all) {
    EXPECT_EQ(entry.key.a, expected->first);
    EXPECT_EQ(text_of(entry.value), expected->second);
    ++expected;
  }
  struct stat status {};
  ASSERT_EQ(::fstat(fd_.get(), &status), 0);
  EXPECT_LT(status.st_blocks * 512, 8 << 20) << "regions that were left take no memory";
}

// A process dies while it writes a record: the state comes last, so the record is not there; but
// its bytes are, and must not be taken for records behind a shorter one that the next process
// writes in its place.
TEST_F(LedgerOf, HalfARecordIsNone) {
  put(Kind::file, 1, "one");
  const std::uint64_t end = LedgerHeader::kBytes + sizeof(LedgerRecord) + 8;
  std::vector<std::byte> half(4'000);
  for (std::size_t at = 0; at + sizeof(LedgerRecord) <= half.size(); at += 8) {
    const LedgerRecord seeming{LedgerRecord::kLive, 8, 4, {}, 99, 0};
    store_little(half.data() + at, seeming);
  }
  write_value(end, LedgerRecord{LedgerRecord::kEnd, 4'000, 4, {}, 2, 0});
  write(end + sizeof(LedgerRecord), half);
  next();
  EXPECT_EQ(ledger_->all(Kind::file).size(), 1U);
  put(Kind::file, 3, "three");
  next();
  EXPECT_EQ(ledger_->all(Kind::file).size(), 2U);
  EXPECT_EQ(text(ledger_->get({Kind::file, 3})), "three");
  EXPECT_EQ(text(ledger_->get({Kind::file, 99})), "none");
}

TEST_F(LedgerOf, OfTwoRecordsUnderOneKeyTheLaterCounts) {
  put(Kind::file, 1, "old");
  const std::uint64_t end = LedgerHeader::kBytes + sizeof(LedgerRecord) + 8;
  write_value(end, LedgerRecord{LedgerRecord::kLive, 3, 4, {}, 1, 0});
  write(end + sizeof(LedgerRecord), bytes_of(std::string_view("new")));
  for (int times = 0; times < 2; ++times) {
    next();
    EXPECT_EQ(ledger_->all(Kind::file).size(), 1U);
    EXPECT_EQ(text(ledger_->get({Kind::file, 1})), "new");
  }
}

TEST_F(LedgerOf, OneOfALaterKindIsPassedOver) {
  put(static_cast<Kind>(999), 1, "of a later build");
  put(Kind::file, 1, "one");
  next();
  EXPECT_EQ(text(ledger_->get({Kind::file, 1})), "one");
}

TEST_F(LedgerOf, AnotherVersionOrADamagedOneIsRefused) {
  put(Kind::file, 1, "one");
  const LedgerHeader good = header();
  const auto refused = [&](auto&& spoil) {
    LedgerHeader header = good;
    spoil(header);
    write_value(0, header);
    const auto opened = Ledger::open(fd_.get());
    write_value(0, good);
    return opened.status();
  };
  EXPECT_EQ(refused([](LedgerHeader& h) { h.magic ^= 1; }).code(), Errc::invalid);
  const Status version = refused([](LedgerHeader& h) { h.version = 2; });
  EXPECT_EQ(version.code(), Errc::invalid);
  EXPECT_NE(version.text().find("version 2"), std::string::npos) << version.text();
  EXPECT_EQ(refused([](LedgerHeader& h) { h.current = 2; }).code(), Errc::invalid);
  EXPECT_EQ(refused([](LedgerHeader& h) { h.current = 1; }).code(), Errc::invalid);
  EXPECT_EQ(refused([](LedgerHeader& h) { h.regions[0].bytes = 1ULL << 40; }).code(),
            Errc::invalid);
  EXPECT_EQ(refused([](LedgerHeader& h) { h.regions[0].offset = UINT64_MAX; }).code(),
            Errc::invalid);
  write_value(LedgerHeader::kBytes, LedgerRecord{LedgerRecord::kLive, UINT32_MAX, 4, {}, 1, 0});
  EXPECT_EQ(Ledger::open(fd_.get()).code(), Errc::invalid);
  ASSERT_EQ(::ftruncate(fd_.get(), 10), 0);
  EXPECT_EQ(Ledger::open(fd_.get()).code(), Errc::invalid);
}

}  // namespace
}  // namespace starlane::client
