// What FileIo promises, one promise a test.
#include <atomic>
#include <condition_variable>
#include <thread>

#include "client/takeover/records.h"
#include "client/write/arena.h"
#include "client/write/replay.h"
#include "client/write/rig.h"

namespace starlane::client {
namespace {

/// Waits for what another thread brings about; the test's own timeout ends it.
template <typename Condition>
void eventually(Condition condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST(FileIo, ReadsWhatWasWrittenBeforeAndAfterTheFlush) {
  Rig rig;
  const FileKey file = rig.create(1);
  const std::string bytes = noise(7'000'000, 1);
  ASSERT_TRUE(rig.write(file, 0, bytes).ok());
  EXPECT_EQ(*rig.read(file, 0, 10'000'000), bytes);
  ASSERT_TRUE(rig.io->dirty(file));
  EXPECT_EQ(rig.io->dirty(file)->length, bytes.size());
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  EXPECT_FALSE(rig.io->dirty(file));
  EXPECT_EQ(rig.known(file).length, bytes.size());
  EXPECT_EQ(*rig.read(file, 0, 10'000'000), bytes);
  // Whole blocks of one slice, and no more blocks than the bytes need.
  EXPECT_EQ(rig.blocks->blocks(), 2u);
  ASSERT_EQ(rig.meta.entries(file, 0).size(), 1u);
}

TEST(FileIo, SmallWritesInARowAreOneExtentAndOneSlice) {
  Rig rig;
  const FileKey file = rig.create(1);
  const std::string bytes = noise(1'000'000, 2);
  for (std::size_t at = 0; at < bytes.size(); at += 1000) {
    ASSERT_TRUE(rig.write(file, at, std::string_view(bytes).substr(at, 1000)).ok());
  }
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  EXPECT_EQ(rig.meta.entries(file, 0).size(), 1u);
  EXPECT_EQ(rig.meta.commits(), 1u);
  EXPECT_EQ(*rig.read(file, 0, 2'000'000), bytes);
}

TEST(FileIo, AFewBytesLiveInTheMetadata) {
  Rig rig;
  const FileKey file = rig.create(1);
  ASSERT_TRUE(rig.write(file, 0, "hello ").ok());
  ASSERT_TRUE(rig.write(file, 6, "world").ok());
  ASSERT_TRUE(rig.io->flush(file, Safety::durable).ok());
  EXPECT_EQ(rig.blocks->blocks(), 0u);
  ASSERT_EQ(rig.meta.entries(file, 0).size(), 1u);
  EXPECT_EQ(rig.meta.entries(file, 0)[0].inline_data(), "hello world");
  EXPECT_EQ(*rig.read(file, 0, 100), "hello world");
  EXPECT_EQ(*rig.read(file, 6, 3), "wor");
}

TEST(FileIo, SmallFilesTakeLittleOfTheCache) {
  Rig rig;
  constexpr std::uint64_t kFiles = 300;
  for (std::uint64_t i = 1; i <= kFiles; ++i) {
    const FileKey file = rig.create(i);
    ASSERT_TRUE(rig.write(file, 0, noise(5000 + i, i)).ok());
  }
  ASSERT_TRUE(rig.io->flush_all(Safety::accepted).ok());
  rig.open(Rig::small());
  for (const bool again : {false, true}) {
    for (std::uint64_t i = 1; i <= kFiles; ++i)
      ASSERT_EQ(*rig.read({BranchId(7), InodeId(i)}, 0, 9000), noise(5000 + i, i)) << again;
  }
  EXPECT_LE(rig.io->figures().cached_bytes, kFiles * 8_KiB);
}

TEST(FileIo, HolesAreZeros) {
  Rig rig;
  const FileKey file = rig.create(1);
  ASSERT_TRUE(rig.write(file, 100'000'000, "end").ok());
  for (const bool flushed : {false, true}) {
    const auto read = rig.read(file, 99'999'000, 5000);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, std::string(1000, 0) + "end");
    if (flushed) break;
    ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  }
}

TEST(FileIo, AnotherVersionIsReadAgainAndTheSameIsNot) {
  Rig rig;
  const FileKey file = rig.create(1), other = rig.create(2);
  ASSERT_TRUE(rig.write(file, 0, noise(100'000, 1)).ok());
  ASSERT_TRUE(rig.write(other, 0, noise(200'000, 2)).ok());
  ASSERT_TRUE(rig.io->flush_all(Safety::accepted).ok());
  EXPECT_EQ(*rig.read(file, 0, 200'000), noise(100'000, 1));
  const std::uint64_t calls = rig.meta.map_calls();
  EXPECT_EQ(*rig.read(file, 5, 1000), noise(100'000, 1).substr(5, 1000));
  EXPECT_EQ(rig.meta.map_calls(), calls);
  // Another client puts the second file's slice over the first one's.
  rig.set_known(file, rig.meta.remote_commit(file, rig.meta.entries(other, 0)[0]));
  EXPECT_EQ(*rig.read(file, 0, 300'000), noise(200'000, 2));
}

TEST(FileIo, ABlockThatIsGoneMeansAnotherMap) {
  Rig rig;
  const FileKey file = rig.create(1), other = rig.create(2);
  ASSERT_TRUE(rig.write(file, 0, noise(100'000, 1)).ok());
  ASSERT_TRUE(rig.write(other, 0, noise(100'000, 2)).ok());
  ASSERT_TRUE(rig.io->flush_all(Safety::accepted).ok());
  EXPECT_EQ(*rig.read(file, 99'999, 1), noise(100'000, 1).substr(99'999));  // the map is known now
  rig.open(Rig::small());
  EXPECT_EQ(*rig.read(file, 99'999, 1), noise(100'000, 1).substr(99'999));
  // Rewritten elsewhere, the old slice is removed; this host has not heard of it.
  const pb::SliceEntry old = rig.meta.entries(file, 0)[0];
  rig.meta.remote_commit(file, rig.meta.entries(other, 0)[0]);
  rig.blocks->lose(BranchId(old.owner()), SliceId(old.slice()));
  EXPECT_EQ(*rig.read(file, 0, 60'000), noise(100'000, 2).substr(0, 60'000));
  // The map has not changed and the block is gone: damage.
  const pb::SliceEntry now = rig.meta.entries(other, 0)[0];
  rig.blocks->lose(BranchId(now.owner()), SliceId(now.slice()));
  rig.open(Rig::small());
  EXPECT_EQ(rig.read(other, 0, 60'000).code(), Errc::io);
}

TEST(FileIo, ABlockThatWasMergedAwayMeansAnotherMapOfTheSameVersion) {
  Rig rig;
  const FileKey file = rig.create(1), other = rig.create(2);
  const std::string bytes = noise(100'000, 1);
  ASSERT_TRUE(rig.write(file, 0, bytes).ok());
  ASSERT_TRUE(rig.write(other, 0, bytes).ok());
  ASSERT_TRUE(rig.io->flush_all(Safety::accepted).ok());
  rig.open(Rig::small());
  EXPECT_EQ(*rig.read(file, 99'999, 1), bytes.substr(99'999));  // the map is known now
  const pb::SliceEntry old = rig.meta.entries(file, 0)[0];
  rig.meta.merge(file, rig.meta.entries(other, 0)[0]);
  rig.blocks->lose(BranchId(old.owner()), SliceId(old.slice()));
  EXPECT_EQ(*rig.read(file, 0, 60'000), bytes.substr(0, 60'000));
}

TEST(FileIo, ReadersOfOneColdFileFetchItOnce) {
  Rig rig;
  const FileKey file = rig.create(1);
  const std::string bytes = noise(9_MiB + 12'345, 3);
  ASSERT_TRUE(rig.write(file, 0, bytes).ok());
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  FileIoOptions options = Rig::small();
  options.cache_bytes = 64_MiB;
  rig.open(options);
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] {
      const auto streams = rig.io->new_streams();
      std::string all;
      while (all.size() < bytes.size()) {
        const auto part = rig.read(file, all.size(), 128_KiB, streams.get());
        if (!part.ok() || part->empty()) break;
        all += *part;
      }
      EXPECT_TRUE(all == bytes);
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(rig.blocks->got_bytes(), bytes.size());
}

TEST(FileIo, RandomReadsFetchUnitsAndNoMore) {
  Rig rig;
  const FileKey file = rig.create(1);
  ASSERT_TRUE(rig.write(file, 0, noise(12_MiB, 3)).ok());
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  rig.open(Rig::small());
  const auto streams = rig.io->new_streams();
  Rng rng(5);
  std::set<std::uint64_t> units;
  for (int i = 0; i < 40; ++i) {
    const std::uint64_t unit = rng.below(12_MiB / kChecksumUnit);
    units.insert(unit);
    ASSERT_TRUE(
        rig.read(file, unit * kChecksumUnit + 8192 * rng.below(7), 4096, streams.get()).ok());
  }
  EXPECT_EQ(rig.blocks->got_bytes(), units.size() * kChecksumUnit);
}

TEST(FileIo, DamageOnTheWayIsNeverReturned) {
  Rig rig(7);
  const FileKey file = rig.create(1);
  const std::string bytes = noise(2'000'000, 3);
  ASSERT_TRUE(rig.write(file, 0, bytes).ok());
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  rig.blocks->set_faults({0, 3});
  for (int i = 0; i < 20; ++i) {
    rig.open(Rig::small());
    const auto read = rig.read(file, 0, 2'000'000);
    EXPECT_TRUE(!read.ok() || *read == bytes);
  }
  rig.blocks->set_faults({0, 1});
  rig.open(Rig::small());
  EXPECT_EQ(rig.read(file, 0, 1000).code(), Errc::io);
}

TEST(FileIo, ABadCopyIsReadFromAnotherTarget) {
  FileIoOptions options = Rig::small();
  options.layout = 2;
  Rig rig(1, options);
  const FileKey file = rig.create(1);
  const std::string bytes = noise(9_MiB, 3);
  ASSERT_TRUE(rig.write(file, 0, bytes).ok());
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  EXPECT_EQ(rig.blocks->blocks(), 6u);
  rig.blocks->damage(TargetId(1));
  rig.open(options);
  EXPECT_TRUE(*rig.read(file, 0, 9_MiB) == bytes);
}

TEST(FileIo, ACommitWhoseAnswerIsLostHappensOnce) {
  Rig rig;
  const FileKey file = rig.create(1);
  std::string model;
  rig.meta.set_faults({4, 0});
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::string part = noise(5000, i);
    ASSERT_TRUE(rig.write(file, model.size(), part).ok());
    model += part;
    ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  }
  rig.meta.set_faults({});
  EXPECT_EQ(rig.meta.commits(), 20u);
  EXPECT_EQ(rig.meta.entries(file, 0).size(), 20u);
  EXPECT_EQ(*rig.read(file, 0, 200'000), model);
}

TEST(FileIo, WritesGoOnWhileAFlushWaits) {
  Rig rig;
  const FileKey file = rig.create(1);
  std::atomic<bool> in_commit{false}, go{false};
  rig.meta.before_commit([&] {
    in_commit = true;
    eventually([&] { return go.load(); });
  });
  ASSERT_TRUE(rig.write(file, 0, noise(100'000, 1)).ok());
  std::thread flusher([&] { EXPECT_TRUE(rig.io->flush(file, Safety::accepted).ok()); });
  eventually([&] { return in_commit.load(); });
  ASSERT_TRUE(rig.write(file, 50'000, noise(100'000, 2)).ok());
  EXPECT_EQ(*rig.read(file, 0, 200'000), noise(100'000, 1).substr(0, 50'000) + noise(100'000, 2));
  go = true;
  flusher.join();
  EXPECT_EQ(*rig.read(file, 0, 200'000), noise(100'000, 1).substr(0, 50'000) + noise(100'000, 2));
  EXPECT_TRUE(rig.io->dirty(file) || rig.known(file).length == 150'000);
}

TEST(FileIo, ACommitOverAnotherClientsChangeShowsBoth) {
  Rig rig;
  const FileKey file = rig.create(1), other = rig.create(2);
  ASSERT_TRUE(rig.write(file, 0, noise(100'000, 1)).ok());
  ASSERT_TRUE(rig.write(other, 0, noise(50'000, 2)).ok());
  ASSERT_TRUE(rig.io->flush_all(Safety::accepted).ok());
  EXPECT_EQ(*rig.read(file, 0, 200'000), noise(100'000, 1));
  rig.meta.remote_commit(file, rig.meta.entries(other, 0)[0]);  // not heard of here
  ASSERT_TRUE(rig.write(file, 90'000, noise(10'000, 3)).ok());
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  EXPECT_EQ(*rig.read(file, 0, 200'000),
            noise(50'000, 2) + noise(100'000, 1).substr(50'000, 40'000) + noise(10'000, 3));
}

TEST(FileIo, ABlockThatFillsDuringACommitIsAnotherSlice) {
  Rig rig;
  const FileKey file = rig.create(1);
  std::atomic<bool> in_commit{false}, go{false};
  rig.meta.before_commit([&] {
    in_commit = true;
    eventually([&] { return go.load(); });
  });
  const std::string bytes = noise(2 * kBlockSize, 1);
  ASSERT_TRUE(rig.write(file, 0, std::string_view(bytes).substr(0, kBlockSize)).ok());
  std::thread flusher([&] { EXPECT_TRUE(rig.io->flush(file, Safety::accepted).ok()); });
  eventually([&] { return in_commit.load(); });
  ASSERT_TRUE(rig.write(file, kBlockSize, std::string_view(bytes).substr(kBlockSize)).ok());
  eventually([&] { return rig.blocks->blocks() == 2; });
  go = true;
  flusher.join();
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  rig.open(Rig::small());
  EXPECT_TRUE(*rig.read(file, 0, 3 * kBlockSize) == bytes);
}

TEST(FileIo, ReadersDuringCommitsNeverSeeAnOlderWrite) {
  Rig rig;
  const FileKey file = rig.create(1);
  constexpr std::uint64_t kWrites = 2000;
  std::atomic<std::uint64_t> written{0};
  const auto write = [&](std::uint64_t number) {
    std::string bytes = noise(6000, number);
    store_little(bytes.data(), number);
    ASSERT_TRUE(rig.write(file, 0, bytes).ok());
    written = number;
  };
  write(1);
  std::thread flusher([&] {
    while (written < kWrites) EXPECT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  });
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (written < kWrites) {
        const std::uint64_t before = written;
        const auto read = rig.read(file, 0, 6000);
        ASSERT_TRUE(read.ok()) << read.status().to_string();
        ASSERT_EQ(read->size(), 6000u);
        const auto number = load_little<std::uint64_t>(read->data());
        ASSERT_GE(number, before);
        ASSERT_TRUE(read->substr(8) == noise(6000, number).substr(8));
      }
    });
  }
  for (std::uint64_t number = 2; number <= kWrites; ++number) {
    write(number);
    std::this_thread::yield();
  }
  flusher.join();
  for (std::thread& reader : readers) reader.join();
}

TEST(FileIo, FsyncIsDurableAndTheRestFollowsByItself) {
  FileIoOptions options = Rig::small();
  options.dirty_age = Milliseconds(20);
  options.durable_every = Milliseconds(20);
  Rig rig(1, options);
  const FileKey synced = rig.create(1), left = rig.create(2);
  ASSERT_TRUE(rig.write(synced, 0, noise(100'000, 1)).ok());
  ASSERT_TRUE(rig.io->flush(synced, Safety::durable).ok());
  EXPECT_TRUE(rig.meta.durable(synced));
  ASSERT_TRUE(rig.write(left, 0, noise(100'000, 2)).ok());
  eventually([&] { return rig.meta.state(left).length == 100'000 && rig.meta.durable(left); });
  const pb::SliceEntry entry = rig.meta.entries(left, 0)[0];
  EXPECT_TRUE(
      rig.blocks->has(BranchId(entry.owner()), SliceId(entry.slice()), entry.slice_length(), true));
}

TEST(FileIo, FencedBytesAreToldOnceAndOthersAreNotTouched) {
  Rig rig;
  const FileKey file = rig.create(1, 7), again = rig.create(2, 7), other = rig.create(3, 8);
  ASSERT_TRUE(rig.write(file, 0, noise(100'000, 1)).ok());
  ASSERT_TRUE(rig.write(again, 0, noise(100'000, 2)).ok());
  ASSERT_TRUE(rig.write(other, 0, noise(100'000, 3)).ok());
  rig.meta.fence(SessionId(107));
  EXPECT_EQ(rig.io->flush(file, Safety::accepted).code(), Errc::io);
  EXPECT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  EXPECT_EQ(rig.io->flush(again, Safety::accepted).code(), Errc::io);
  EXPECT_TRUE(rig.io->flush(other, Safety::accepted).ok());
  EXPECT_EQ(rig.meta.state(file).length, 0u);
  EXPECT_EQ(rig.meta.state(other).length, 100'000u);
  // Under the new session it goes on.
  ASSERT_TRUE(rig.write(file, 0, "new").ok());
  EXPECT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  EXPECT_EQ(*rig.read(file, 0, 100), "new");
}

TEST(FileIo, AFullStoreIsToldByTheFlush) {
  Rig rig;
  const FileKey file = rig.create(1);
  ASSERT_TRUE(rig.write(file, 0, noise(100'000, 1)).ok());
  ASSERT_TRUE(rig.io->flush(file, Safety::durable).ok());
  rig.blocks->fail_puts(Status(Errc::no_space, "full"));
  ASSERT_TRUE(rig.write(file, 100'000, noise(100'000, 2)).ok());
  EXPECT_EQ(rig.io->flush(file, Safety::accepted).code(), Errc::no_space);
  EXPECT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  EXPECT_EQ(*rig.read(file, 0, 200'000), noise(100'000, 1));
  // More than the arena holds: the writer is told, not kept waiting.
  Status status;
  for (std::uint64_t at = 0; status.ok() && at < 200_MiB; at += 1_MiB)
    status = rig.write(file, at, noise(1_MiB, at));
  EXPECT_EQ(status.code(), Errc::no_space);
  EXPECT_EQ(rig.io->flush(file, Safety::accepted).code(), Errc::no_space);
  rig.blocks->fail_puts({});
  ASSERT_TRUE(rig.write(file, 0, "x").ok());
  EXPECT_TRUE(rig.io->flush(file, Safety::accepted).ok());
}

TEST(FileIo, AWriteWithoutRoomFailsAloneBesideOthersOfItsFile) {
  Rig rig;
  rig.meta.set_room(100'000);
  const FileKey file = rig.create(1);
  const std::string first = noise(60'000, 1), beside = noise(30'000, 2), over = noise(50'000, 3);
  ASSERT_TRUE(rig.write(file, 0, first).ok());
  int asked = 0;
  rig.meta.before_escrow([&] {  // another thread writes what there is room for
    if (++asked == 2) {
      EXPECT_TRUE(rig.write(file, 60'000, beside).ok());
    }
  });
  EXPECT_EQ(rig.write(file, 90'000, noise(60'000, 4)).code(), Errc::quota);
  EXPECT_GE(asked, 2);
  EXPECT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  EXPECT_EQ(*rig.read(file, 0, 200'000), first + beside);
  ASSERT_TRUE(rig.write(file, 20'000, over).ok()) << "over data it takes no room";
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  EXPECT_EQ(*rig.read(file, 0, 200'000), first.substr(0, 20'000) + over + beside.substr(10'000));
}

TEST(FileIo, AWriteWithoutRoomMayLieInSeveralBlocksAndChunks) {
  Rig rig;
  const FileKey file = rig.create(1);
  const std::uint64_t at = kChunkSize - 5'000'000;
  const std::string bytes = noise(9'000'000, 2);
  ASSERT_TRUE(rig.write(file, at + bytes.size(), "end").ok());
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  rig.open(Rig::small());  // it has not heard of the quota
  rig.meta.set_room(0);
  ASSERT_TRUE(rig.write(file, at, bytes).ok());
  EXPECT_FALSE(rig.io->dirty(file)) << "it is committed";
  EXPECT_TRUE(*rig.read(file, at, 20'000'000) == bytes + "end");
}

TEST(FileIo, AFailureThatNobodyWasToldOfIsLeftToTheNextProcess) {
  const UniqueFd memory = std::move(Ledger::create()).value();
  auto ledger = std::move(Ledger::open(memory.get())).value();
  FileIoOptions options = Rig::small();
  options.ledger = ledger.get();
  options.dirty_age = Milliseconds(1);
  Rig rig(1, options);
  const FileKey file = rig.create(1), told = rig.create(2);
  rig.blocks->fail_puts(Status(Errc::no_space, "full"));
  ASSERT_TRUE(rig.write(file, 0, noise(100'000, 1)).ok());
  ASSERT_TRUE(rig.write(told, 0, noise(100'000, 2)).ok());
  EXPECT_EQ(rig.io->flush(told, Safety::accepted).code(), Errc::no_space);
  eventually([&] { return !rig.io->dirty(file); });  // it left by itself, in vain
  rig.io.reset();
  ledger = std::move(Ledger::open(memory.get())).value();
  const auto left = ledger->all(Ledger::Kind::lost);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].key, (Ledger::Key{Ledger::Kind::lost, 7, 1}));
  EXPECT_EQ(plain_of<LostRecord>(left[0].value)->error_number, ENOSPC);
  options.ledger = ledger.get();
  rig.open(options);
  rig.io->lost(file, Status(Errc::no_space, "as the ledger says"));
  EXPECT_EQ(rig.io->flush(file, Safety::accepted).code(), Errc::no_space);
  EXPECT_TRUE(ledger->all(Ledger::Kind::lost).empty()) << "told now";
  EXPECT_TRUE(rig.io->flush(file, Safety::accepted).ok());
}

SetStat mode_of(std::uint32_t mode) {
  SetStat change;
  change.mode = mode;
  return change;
}

TEST(FileIo, AttributesGoWithTheCommitOfTheBytes) {
  Rig rig;
  const FileKey file = rig.create(1);
  EXPECT_FALSE(rig.io->put_off(file, mode_of(0600))) << "no commit is to come";
  ASSERT_TRUE(rig.write(file, 0, "x").ok());
  SetStat owner;
  owner.uid = 5;
  owner.mtime = WallTime{1000, 7};
  ASSERT_TRUE(rig.io->put_off(file, mode_of(0640)));
  ASSERT_TRUE(rig.io->put_off(file, owner));
  ASSERT_TRUE(rig.io->put_off(file, mode_of(0600)));
  const auto dirty = rig.io->dirty(file);
  ASSERT_TRUE(dirty && dirty->set);
  EXPECT_EQ(dirty->set->mode, 0600u);
  EXPECT_EQ(dirty->mtime, (WallTime{1000, 7}));
  EXPECT_TRUE(dirty->mtime_given);
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  EXPECT_EQ(rig.meta.commits(), 1u);
  EXPECT_EQ(rig.meta.sets(), 0u);
  EXPECT_EQ(rig.meta.set(file).mode(), 0600u);
  EXPECT_EQ(rig.meta.set(file).uid(), 5u);
  EXPECT_EQ(rig.meta.set(file).mtime().seconds(), 1000);
  EXPECT_FALSE(rig.io->dirty(file));
}

TEST(FileIo, AWriteAfterAGivenTimeCounts) {
  Rig rig;
  const FileKey file = rig.create(1);
  ASSERT_TRUE(rig.write(file, 0, "x").ok());
  SetStat change = mode_of(0600);
  change.mtime = WallTime{1000, 7};
  ASSERT_TRUE(rig.io->put_off(file, change));
  ASSERT_TRUE(rig.write(file, 1, "y").ok());
  EXPECT_FALSE(rig.io->dirty(file)->mtime_given);
  EXPECT_GT(rig.io->dirty(file)->mtime.seconds, 1000);
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  EXPECT_EQ(rig.meta.set(file).mode(), 0600u);
  EXPECT_FALSE(rig.meta.set(file).has_mtime());
}

TEST(FileIo, AttributesWhoseBytesAreLostGoAlone) {
  Rig rig;
  const FileKey file = rig.create(1);
  rig.blocks->fail_puts(Status(Errc::no_space, "full"));
  ASSERT_TRUE(rig.write(file, 0, noise(100'000, 1)).ok());
  ASSERT_TRUE(rig.io->put_off(file, mode_of(0600)));
  EXPECT_EQ(rig.io->flush(file, Safety::accepted).code(), Errc::no_space);
  EXPECT_EQ(rig.meta.commits(), 0u);
  EXPECT_EQ(rig.meta.sets(), 1u);
  EXPECT_EQ(rig.meta.set(file).mode(), 0600u);
  EXPECT_FALSE(rig.io->dirty(file));
}

TEST(FileIo, AttributesOfAnEndedSessionAreLostWithItsBytes) {
  Rig rig;
  const FileKey file = rig.create(1);
  ASSERT_TRUE(rig.write(file, 0, noise(100'000, 1)).ok());
  ASSERT_TRUE(rig.io->put_off(file, mode_of(0600)));
  rig.meta.fence(SessionId(107));
  EXPECT_EQ(rig.io->flush(file, Safety::accepted).code(), Errc::io);
  EXPECT_FALSE(rig.meta.set(file).has_mode());
  EXPECT_FALSE(rig.io->dirty(file));
}

TEST(FileIo, AttributesThatWerePutOffStandInTheLedgerUntilTheyAreCommitted) {
  const UniqueFd memory = std::move(Ledger::create()).value();
  const auto ledger = std::move(Ledger::open(memory.get())).value();
  FileIoOptions options = Rig::small();
  options.ledger = ledger.get();
  Rig rig(1, options);
  const FileKey file = rig.create(1), removed = rig.create(2);
  const auto noted = [&] { return ledger->all(Ledger::Kind::set); };
  for (const FileKey each : {file, removed}) ASSERT_TRUE(rig.write(each, 0, "x").ok());
  SetStat change = mode_of(04755);
  change.gid = 3'000'000'000;
  change.atime = WallTime{-5, 1};
  change.mtime = WallTime{1000, 7};
  ASSERT_TRUE(rig.io->put_off(file, change));
  ASSERT_TRUE(rig.io->put_off(removed, change));
  rig.io->discard(removed, 0);
  ASSERT_EQ(noted().size(), 1u);
  EXPECT_EQ(noted()[0].key, (Ledger::Key{Ledger::Kind::set, 7, 1}));
  SetStat left = change_of(*plain_of<SetRecord>(noted()[0].value));
  EXPECT_EQ(left.mode, change.mode);
  EXPECT_FALSE(left.uid);
  EXPECT_EQ(left.gid, change.gid);
  EXPECT_EQ(left.atime, change.atime);
  EXPECT_EQ(left.mtime, change.mtime);
  ASSERT_TRUE(rig.write(file, 1, "y").ok());
  EXPECT_FALSE(change_of(*plain_of<SetRecord>(noted()[0].value)).mtime) << "written since";
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  EXPECT_TRUE(noted().empty());
}

TEST(FileIo, MoreThanTheArenaHoldsPassesThroughIt) {
  Rig rig;
  const FileKey file = rig.create(1);
  for (std::uint64_t at = 0; at < 100_MiB; at += 1_MiB)
    ASSERT_TRUE(rig.write(file, at, noise(1_MiB, at)).ok());
  std::vector<FileKey> small;
  for (std::uint64_t i = 0; i < 3000; ++i) {  // more extents than the arena has records
    small.push_back(rig.create(100 + i));
    ASSERT_TRUE(rig.write(small.back(), 0, noise(5000, i)).ok());
  }
  EXPECT_LE(rig.io->figures().dirty_bytes, 32_MiB);
  ASSERT_TRUE(rig.io->flush_all(Safety::durable).ok());
  EXPECT_EQ(rig.io->figures().dirty_bytes, 0u);
  for (std::uint64_t at = 0; at < 100_MiB; at += 1_MiB)
    ASSERT_TRUE(*rig.read(file, at, 1_MiB) == noise(1_MiB, at));
  for (std::uint64_t i = 0; i < small.size(); ++i)
    ASSERT_EQ(*rig.read(small[i], 0, 9999), noise(5000, i));
}

TEST(FileIo, AWaitForAServerEndsWhenTheApplicationIsSignalled) {
  Rig rig;
  const FileKey file = rig.create(1);
  ASSERT_TRUE(rig.write(file, 0, noise(100'000, 1)).ok());
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  rig.open(Rig::small());
  rig.blocks->fail_all(Status(Errc::unavailable, "away"));
  std::atomic<bool> asked{false};
  rig.blocks->before_get([&] { asked = true; });
  std::thread reader(
      [&] { EXPECT_EQ(rig.read(file, 0, 1000, nullptr, 42).code(), Errc::interrupted); });
  std::atomic<bool> done{false};
  std::thread patient([&] {
    EXPECT_EQ(*rig.read(file, 0, 1000, nullptr, 43), noise(100'000, 1).substr(0, 1000));
    done = true;
  });
  eventually([&] { return asked.load(); });
  rig.io->interrupt(42);
  reader.join();
  EXPECT_FALSE(done);
  // The kernel's word may overtake the thread of the request.
  rig.io->interrupt(44);
  EXPECT_EQ(rig.read(file, 50'000, 1000, nullptr, 44).code(), Errc::interrupted);
  rig.blocks->fail_all({});
  patient.join();
}

TEST(FileIo, AppendsGoWhereTheServerSays) {
  Rig rig;
  const FileKey file = rig.create(1);
  ASSERT_TRUE(rig.write(file, 0, noise(10'000, 1)).ok());
  const std::string more = noise(3000, 2);
  const auto at =
      rig.io->append({file, rig.known(file), 0, bytes_of(more), false}, Safety::durable);
  ASSERT_TRUE(at.ok()) << at.status().to_string();
  EXPECT_EQ(*at, 10'000u);
  EXPECT_TRUE(rig.meta.durable(file));
  EXPECT_EQ(*rig.read(file, 0, 20'000), noise(10'000, 1) + more);
}

TEST(FileIo, TheNextDaemonFindsWhatWasAcknowledged) {
  FileIoOptions options = Rig::small();
  options.dirty_age = std::chrono::hours(1);
  const auto held = Arena::create(options.arena_bytes);
  ASSERT_TRUE(held.ok());
  options.arena_fd = held->get();
  Rig rig(1, options);
  const FileKey file = rig.create(1), small = rig.create(2), cut = rig.create(3),
                flushed = rig.create(4);
  std::string model = noise(6'000'000, 1);
  ASSERT_TRUE(rig.write(file, 0, model).ok());
  for (std::uint64_t i = 0; i < 50; ++i) {  // over it, over each other, and beyond its end
    const std::string part = noise(100'000, 100 + i);
    const std::size_t at = i * 7919 * 17 % 6'000'000;
    ASSERT_TRUE(rig.write(file, at, part).ok());
    model.resize(std::max(model.size(), at + part.size()));
    model.replace(at, part.size(), part);
  }
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(rig.write(small, i * 3, "abc").ok());
  ASSERT_TRUE(rig.write(cut, 0, noise(50'000, 8)).ok());
  ASSERT_TRUE(rig.write(cut, 10'000, noise(90'000, 9)).ok());
  rig.truncate(cut, 20'000);
  ASSERT_TRUE(rig.write(flushed, 0, "safe").ok());
  ASSERT_TRUE(rig.io->flush(flushed, Safety::durable).ok());

  FileIoOptions fresh = Rig::small();
  rig.open(fresh);
  const auto refused = make_file_io(
      rig.meta, [&](const std::string&) { return rig.blocks; }, rig.attachments, rig.requests,
      options);
  EXPECT_EQ(refused.code(), Errc::invalid);  // it still holds extents
  const auto replayed = replay_arena(held->get(), *rig.io);
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
  ASSERT_TRUE(rig.io->flush_all(Safety::durable).ok());
  EXPECT_TRUE(*rig.read(file, 0, 10'000'000) == model);
  std::string letters;
  for (int i = 0; i < 100; ++i) letters += "abc";
  EXPECT_EQ(*rig.read(small, 0, 1000), letters);
  EXPECT_EQ(*rig.read(cut, 0, 100'000),
            noise(50'000, 8).substr(0, 10'000) + noise(90'000, 9).substr(0, 10'000));
  EXPECT_EQ(*rig.read(flushed, 0, 100), "safe");
  EXPECT_EQ(rig.meta.state(flushed).version, 2u);  // it was committed: not again
}

}  // namespace
}  // namespace starlane::client
