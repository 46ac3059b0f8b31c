// What BlockService promises, on a directory in memory, one on a disk, and a device in memory with
// O_DIRECT's rules.
#include <thread>

#include "block/fixture.h"

namespace starlane::block {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

enum class Where { tmpfs, disk, mem };

class StoreTest : public testing::TestWithParam<Where> {
 protected:
  void SetUp() override { reopen(); }
  void reopen() {
    store_.reset();
    store_ = open_or_die(options());
  }
  StoreOptions options() {
    if (GetParam() == Where::mem) return options_for(device_, directory_.path() + "/index");
    return options_for(directory_.path() + "/target");
  }
  TargetInfo info() { return store_->targets({}).value().at(0); }
  /// Forces the index to be written, as time would.
  void settle() { (void)list_all(*store_); }

  TempDirectory directory_{GetParam() == Where::disk ? "/var/tmp" : "/dev/shm"};
  MemDevice device_{{.traits = {.alignment = kDiskPage, .in_memory = false}}};
  std::unique_ptr<Store> store_;
};

TEST_P(StoreTest, BlocksOfEveryShapeComeBackBeforeAndAfterReopening) {
  const std::size_t lengths[] = {1,     100,     4096,      8192,      8193,  65536,
                                 65537, 100'000, 1_MiB - 1, 3 * 65536, 4_MiB, 4_MiB - 1};
  std::uint64_t slice = 1;
  for (const std::size_t length : lengths) {
    for (const bool plain : {false, true}) {
      const BlockId id = block_id(slice++, plain);
      ASSERT_TRUE(put(*store_, id, content_of(id, length).span(), Safety::accepted, plain).ok());
    }
  }
  for (int round = 0; round < 2; ++round) {
    slice = 1;
    for (const std::size_t length : lengths) {
      for (const std::uint32_t index : {0, 1}) {
        const BlockId id = block_id(slice++, index);
        const Status status = check(*store_, id, length);
        ASSERT_TRUE(status.ok()) << length << " " << status.to_string();
        ASSERT_TRUE(
            check_range(*store_, id, length, 0, static_cast<std::uint32_t>(length), true).ok());
      }
    }
    EXPECT_THAT(verify_all(*store_, 5), IsEmpty());
    EXPECT_EQ(info().blocks, 24u);
    reopen();
  }
}

TEST_P(StoreTest, RangesCarryTheChecksumsOfExactlyTheirBytes) {
  constexpr std::size_t kLength = 300'000;
  const BlockId id = block_id(1);
  ASSERT_TRUE(put(*store_, id, kLength).ok());
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  for (int i = 0; i < 300; ++i) {
    auto offset = static_cast<std::uint32_t>(rng.below(kLength));
    auto count = static_cast<std::uint32_t>(1 + rng.below(kLength - offset));
    if (rng.one_in(3)) offset = static_cast<std::uint32_t>(round_down(offset, 64_KiB));
    if (rng.one_in(3)) count = static_cast<std::uint32_t>(kLength - offset);
    const Status status = check_range(*store_, id, kLength, offset, count, rng.one_in(2));
    ASSERT_TRUE(status.ok()) << offset << "+" << count << " " << status.to_string();
  }
}

TEST_P(StoreTest, RangesOutsideTheBlockAreInvalid) {
  const BlockId small = block_id(1), large = block_id(2);
  ASSERT_TRUE(put(*store_, small, 100).ok());
  ASSERT_TRUE(put(*store_, large, 100'000).ok());
  for (const auto& [id, length] : {std::pair(small, 100u), std::pair(large, 100'000u)}) {
    Bytes out(200'000);
    LandingSink sink(out.span());
    for (const auto& [offset, count] :
         {std::pair(0u, 0u), std::pair(length, 1u), std::pair(1u, length), std::pair(~0u, ~0u)}) {
      EXPECT_EQ(store_->get({}, {kTarget, id, offset, count}, sink).code(), Errc::invalid);
    }
    EXPECT_EQ(sink.written(), 0u);
  }
}

TEST_P(StoreTest, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(check(*store_, block_id(1), 10).code(), Errc::not_found);
  PutBlock request{TargetId(99), block_id(1), Safety::accepted, {0}};
  MemorySource one(bytes_of("x"));
  EXPECT_EQ(store_->put({}, request, one).code(), Errc::not_found);
  EXPECT_EQ(store_->sync({}, TargetId(99)).code(), Errc::not_found);
  EXPECT_EQ(store_->remove_slice({}, TargetId(99), BranchId(1), SliceId(1)).code(),
            Errc::not_found);
  EXPECT_EQ(store_->list({}, TargetId(99), "", 1).code(), Errc::not_found);
}

TEST_P(StoreTest, BadPutsLeaveNothing) {
  const BlockId id = block_id(1);
  const Bytes bytes = content_of(id, 100'000);
  auto checksums = checksum_units(bytes.span());
  const auto try_put = [&](ByteSpan data, std::vector<std::uint32_t> sums) {
    MemorySource source(data);
    return store_->put({}, {kTarget, id, Safety::accepted, std::move(sums)}, source).code();
  };
  EXPECT_EQ(try_put({}, {}), Errc::invalid);
  EXPECT_EQ(try_put(bytes.span(), {checksums[0]}), Errc::invalid);
  const Bytes huge(4_MiB + 1);
  EXPECT_EQ(try_put(huge.span(), checksum_units(huge.span())), Errc::invalid);
  auto wrong = checksums;
  wrong[1] ^= 1;
  EXPECT_EQ(try_put(bytes.span(), wrong), Errc::corrupt);
  EXPECT_EQ(check(*store_, id, 100'000).code(), Errc::not_found);
  EXPECT_EQ(try_put(bytes.span(), checksums), Errc::ok);
  EXPECT_TRUE(check(*store_, id, 100'000).ok());
}

TEST_P(StoreTest, ASecondPutMustAgree) {
  const BlockId id = block_id(1);
  ASSERT_TRUE(put(*store_, id, 5000).ok());
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(put(*store_, id, 5000, Safety::durable).ok());
    EXPECT_EQ(put(*store_, id, 5001).code(), Errc::exists);
    EXPECT_EQ(put(*store_, id, content_of(block_id(2), 5000).span()).code(), Errc::exists);
    settle();
  }
  EXPECT_TRUE(check(*store_, id, 5000).ok());
  EXPECT_EQ(info().blocks, 1u);
}

TEST_P(StoreTest, ARemovedSliceStaysRemoved) {
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(put(*store_, block_id(1, i), 70'000).ok());
  settle();
  for (std::uint32_t i = 3; i < 6; ++i) ASSERT_TRUE(put(*store_, block_id(1, i), 700).ok());
  ASSERT_TRUE(put(*store_, block_id(2), 70'000).ok());
  ASSERT_TRUE(
      put(*store_, block_id(1, 0, 8), 70'000).ok());  // another owner's slice of that number
  ASSERT_TRUE(store_->remove_slice({}, kTarget, BranchId(7), SliceId(1)).ok());
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < 6; ++i) {
      EXPECT_EQ(check(*store_, block_id(1, i), 70'000).code(), Errc::not_found);
      EXPECT_EQ(put(*store_, block_id(1, i), 70'000).code(), Errc::fenced);
    }
    EXPECT_EQ(put(*store_, block_id(1, 99), 70'000).code(), Errc::fenced);
    EXPECT_TRUE(check(*store_, block_id(2), 70'000).ok());
    EXPECT_TRUE(check(*store_, block_id(1, 0, 8), 70'000).ok());
    EXPECT_TRUE(store_->remove_slice({}, kTarget, BranchId(7), SliceId(1)).ok());
    if (round == 0) settle();
    if (round == 1) reopen();
  }
  EXPECT_EQ(list_all(*store_).size(), 2u);
  EXPECT_EQ(info().blocks, 2u);
  EXPECT_EQ(info().stored_bytes, 140'000u);
}

TEST_P(StoreTest, ASliceThatNeverWasCanBeFenced) {
  ASSERT_TRUE(store_->remove_slice({}, kTarget, BranchId(7), SliceId(5)).ok());
  reopen();
  EXPECT_EQ(put(*store_, block_id(5), 10).code(), Errc::fenced);
}

TEST_P(StoreTest, ListsInIdOrderPageByPage) {
  std::vector<BlockId> ids;
  for (const std::uint64_t slice : {300, 2, 256, 255, 1}) {
    for (const std::uint32_t index : {256u, 0u, 255u}) ids.push_back(block_id(slice, index));
  }
  for (const BlockId& id : ids) ASSERT_TRUE(put(*store_, id, 10 + id.index).ok());
  std::ranges::sort(ids);
  for (const std::uint32_t limit : {1u, 2u, 15u, 16u, 1000u}) {
    const auto all = list_all(*store_, limit);
    ASSERT_EQ(all.size(), ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(all[i].block, ids[i]);
      EXPECT_EQ(all[i].length, 10 + ids[i].index);
    }
  }
  EXPECT_EQ(store_->list({}, kTarget, "nonsense", 10).code(), Errc::invalid);
  EXPECT_EQ(store_->verify({}, kTarget, std::string(40, 'g'), 10).code(), Errc::invalid);
  EXPECT_EQ(store_->list({}, kTarget, "", 0).code(), Errc::invalid);
}

TEST_P(StoreTest, SpaceOfRemovedSlicesComesBack) {
  constexpr std::uint64_t kSlices = 40;
  const std::uint64_t before = info().free_bytes;
  for (std::uint64_t slice = 1; slice <= kSlices; ++slice) {
    ASSERT_TRUE(put(*store_, block_id(slice), 1_MiB).ok());
  }
  settle();
  const std::uint64_t full = info().free_bytes;
  for (std::uint64_t slice = 1; slice <= kSlices; slice += 2) {  // holes in all segments
    ASSERT_TRUE(store_->remove_slice({}, kTarget, BranchId(7), SliceId(slice)).ok());
  }
  settle();
  const std::uint64_t half = info().free_bytes;
  for (std::uint64_t slice = 2; slice <= kSlices; slice += 2) {
    ASSERT_TRUE(check(*store_, block_id(slice), 1_MiB).ok());
    ASSERT_TRUE(store_->remove_slice({}, kTarget, BranchId(7), SliceId(slice)).ok());
  }
  settle();
  // Others use these file systems too, so only the device in memory is exact.
  if (GetParam() != Where::mem) return;
  EXPECT_GE(half, full + 20_MiB);
  EXPECT_GE(info().free_bytes + 1_MiB, before) << "empty segments are dropped";
}

TEST_P(StoreTest, ManyThreadsPutGetAndRemoveAtOnce) {
  constexpr std::uint64_t kThreads = 4, kSlices = 24;
  std::array<Status, kThreads> results;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(t);
      const auto run = [&]() -> Status {
        for (std::uint64_t i = 0; i < kSlices; ++i) {
          const std::uint64_t slice = 1 + t * 1000 + i;
          for (std::uint32_t index = 0; index < 3; ++index) {
            const std::size_t length = 1 + (slice * 7919 + index * 104'729) % 300'000;
            const Safety safety = rng.one_in(4) ? Safety::durable : Safety::accepted;
            SL_TRY(put(*store_, block_id(slice, index), length, safety));
            SL_TRY(check(*store_, block_id(slice, index), length));
          }
          if (rng.one_in(8)) (void)list_all(*store_);
          if (i % 3 == 2)
            SL_TRY(store_->remove_slice({}, kTarget, BranchId(7), SliceId(slice - 1)));
        }
        return {};
      };
      results[t] = run();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Status& status : results) EXPECT_TRUE(status.ok()) << status.to_string();
  reopen();
  EXPECT_EQ(list_all(*store_).size(), kThreads * kSlices * 2);
  EXPECT_EQ(info().blocks, kThreads * kSlices * 2);
  EXPECT_THAT(verify_all(*store_), IsEmpty());
}

TEST_P(StoreTest, PutsOfOneIdAndItsRemovalRace) {
  for (std::uint64_t slice = 1; slice <= 30; ++slice) {
    std::array<Errc, 4> codes{};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < codes.size(); ++t) {
      threads.emplace_back([&, t] {
        codes[t] = t == 3 && slice % 2 == 0
                       ? store_->remove_slice({}, kTarget, BranchId(7), SliceId(slice)).code()
                       : put(*store_, block_id(slice), 50'000).code();
      });
    }
    for (auto& thread : threads) thread.join();
    const Status now = check(*store_, block_id(slice), 50'000);
    if (slice % 2 == 0) {
      EXPECT_EQ(codes[3], Errc::ok);
      EXPECT_EQ(now.code(), Errc::not_found);
      EXPECT_EQ(put(*store_, block_id(slice), 50'000).code(), Errc::fenced);
    } else {
      for (const Errc code : codes) EXPECT_EQ(code, Errc::ok);
      EXPECT_TRUE(now.ok());
    }
  }
  EXPECT_EQ(list_all(*store_).size(), 15u);
  EXPECT_THAT(verify_all(*store_), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(All, StoreTest, testing::Values(Where::tmpfs, Where::disk, Where::mem),
                         [](const auto& each) {
                           return each.param == Where::tmpfs  ? "tmpfs"
                                  : each.param == Where::disk ? "disk"
                                                              : "mem";
                         });

TEST(Store, OneDirectoryOneStore) {
  TempDirectory directory;
  auto store = open_or_die(options_for(directory.path()));
  const auto second = Store::open(options_for(directory.path()));
  EXPECT_EQ(second.code(), Errc::busy);
  EXPECT_THAT(second.status().text(),
              HasSubstr(directory.path() + " is in use by another process"));
}

TEST(Store, RefusesWhatIsNotItsOwn) {
  TempDirectory directory;
  open_or_die(options_for(directory.path())).reset();
  auto foreign = options_for(directory.path());
  foreign.cluster = "another";
  EXPECT_THAT(Store::open(std::move(foreign)).status().text(),
              HasSubstr("it belongs to cluster test-cluster, not to another"));
  auto other = options_for(directory.path());
  other.targets[0].id = TargetId(4);
  EXPECT_THAT(Store::open(std::move(other)).status().text(), HasSubstr("it is target 3, not 4"));

  const auto refused_as = [&](const std::string& identity) {
    std::filesystem::remove(directory.path() + "/identity");
    const std::string command = "printf '" + identity + "' > " + directory.path() + "/identity";
    SL_CHECK(::system(command.c_str()) == 0);
    return Store::open(options_for(directory.path())).status();
  };
  EXPECT_EQ(refused_as("starlane block target\\nformat 2\\nmore\\n").code(), Errc::unsupported);
  EXPECT_EQ(refused_as("something else\\n").code(), Errc::invalid);
  EXPECT_EQ(refused_as("starlane block target\\nformat 1\\ncluster x\\n").code(), Errc::corrupt);

  TempDirectory holiday;
  SL_CHECK(::system(("touch " + holiday.path() + "/photo.jpg").c_str()) == 0);
  EXPECT_THAT(Store::open(options_for(holiday.path())).status().text(), HasSubstr("photo.jpg"));
  EXPECT_FALSE(std::filesystem::exists(holiday.path() + "/identity"));

  auto absent = options_for(directory.path() + "/none");
  absent.tuning.create = false;
  EXPECT_EQ(Store::open(std::move(absent)).code(), Errc::not_found);
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/none"));
}

TEST(Store, SeveralTargetsAreApart) {
  TempDirectory directory;
  StoreOptions options = options_for(directory.path() + "/a");
  options.targets.emplace_back();
  options.targets[1].id = TargetId(4);
  options.targets[1].directory = directory.path() + "/b";
  auto store = open_or_die(std::move(options));
  ASSERT_TRUE(put(*store, block_id(1), 100).ok());
  Bytes out(100);
  LandingSink sink(out.span());
  EXPECT_EQ(store->get({}, {TargetId(4), block_id(1), 0, 100}, sink).code(), Errc::not_found);
  EXPECT_EQ(store->targets({}).value().size(), 2u);

  StoreOptions twice = options_for(directory.path() + "/c");
  twice.targets.emplace_back();
  twice.targets[1].id = kTarget;
  twice.targets[1].directory = directory.path() + "/d";
  EXPECT_EQ(Store::open(std::move(twice)).code(), Errc::invalid);
}

TEST(Store, ALostIndexIsRebuiltFromTheSegments) {
  TempDirectory directory;
  auto store = open_or_die(options_for(directory.path()));
  for (std::uint64_t slice = 1; slice <= 30; ++slice) {
    ASSERT_TRUE(put(*store, block_id(slice), 500 + slice * 10'000).ok());
  }
  ASSERT_TRUE(store->remove_slice({}, kTarget, BranchId(7), SliceId(3)).ok());
  store.reset();
  std::filesystem::remove_all(directory.path() + "/index");
  store = open_or_die(options_for(directory.path()));
  for (std::uint64_t slice = 1; slice <= 30; ++slice) {
    const Status status = check(*store, block_id(slice), 500 + slice * 10'000);
    EXPECT_EQ(status.code(), slice == 3 ? Errc::not_found : Errc::ok) << slice;
  }
  EXPECT_EQ(put(*store, block_id(3), 10).code(), Errc::fenced);
  EXPECT_EQ(store->targets({}).value()[0].blocks, 29u);
}

TEST(Store, AnOldDeadlineIsATimeout) {
  TempDirectory directory;
  auto store = open_or_die(options_for(directory.path()));
  Call call;
  call.deadline = Deadline::after(Nanoseconds(-1));
  EXPECT_EQ(store->sync(call, kTarget).code(), Errc::timeout);
}

}  // namespace
}  // namespace starlane::block
