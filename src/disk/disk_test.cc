// One suite for every disk: what the interface promises, on posix, io_uring and mem, with and
// without O_DIRECT.
#include "disk/disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "common/rng.h"
#include "disk/buffer_pool.h"
#include "disk/mem/mem_device.h"
#include "disk/open_disk.h"

namespace starlane {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Kind {
  const char* name;
  const char* parent;  // null: mem
  DiskOptions::Way way;
};

class DiskTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam().parent == nullptr) {
      device_ = std::make_unique<MemDevice>(
          MemDevice::Options{.traits = {.alignment = kDiskPage, .in_memory = false}});
      disk_ = device_->disk();
      return;
    }
    std::string pattern = std::string(GetParam().parent) + "/starlane-disk-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    auto disk = open_disk(directory_ + "/d", {.way = GetParam().way, .depth = 8, .create = true});
    if (disk.code() == Errc::unsupported) GTEST_SKIP() << disk.status().text();
    ASSERT_TRUE(disk.ok()) << disk.status().to_string();
    disk_ = std::move(disk).value();
  }
  void TearDown() override {
    disk_.reset();
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }
  std::unique_ptr<DiskFile> create(const std::string& name) {
    auto file = disk_->open(name, OpenFile::create);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return std::move(file).value();
  }
  static void fill(MutableByteSpan bytes, std::uint64_t seed) {
    Rng rng(seed);
    for (auto& b : bytes) b = static_cast<std::byte>(rng.next());
  }

  std::string directory_;
  std::unique_ptr<MemDevice> device_;
  std::unique_ptr<Disk> disk_;
  BufferPool pool_{{.buffer_bytes = 256_KiB, .limit = 32}};
};

TEST_P(DiskTest, WrittenBytesReadBack) {
  auto file = create("a");
  auto out = pool_.take(), in = pool_.take();
  fill(out.span(), 1);
  ASSERT_TRUE(file->write(8 * kDiskPage, out.span()).ok());
  ASSERT_TRUE(file->write(0, ByteSpan(out.span()).first(kDiskPage),
                          ByteSpan(out.span()).subspan(5 * kDiskPage, 2 * kDiskPage))
                  .ok());
  ASSERT_TRUE(file->sync().ok());
  ASSERT_TRUE(file->read(8 * kDiskPage, in.span()).ok());
  EXPECT_TRUE(std::equal(out.span().begin(), out.span().end(), in.span().begin()));
  ASSERT_TRUE(file->read(kDiskPage, in.span().first(2 * kDiskPage)).ok());
  EXPECT_TRUE(std::equal(in.data(), in.data() + 2 * kDiskPage, out.data() + 5 * kDiskPage));
  EXPECT_EQ(file->size().value(), 8 * kDiskPage + 256_KiB);
}

TEST_P(DiskTest, ReadingPastTheEndIsAnError) {
  auto file = create("a");
  auto buffer = pool_.take();
  ASSERT_TRUE(file->write(0, buffer.span().first(kDiskPage)).ok());
  EXPECT_EQ(file->read(0, buffer.span().first(2 * kDiskPage)).code(), Errc::io);
  EXPECT_EQ(file->read(64 * kDiskPage, buffer.span().first(kDiskPage)).code(), Errc::io);
}

TEST_P(DiskTest, ManyOperationsInFlightFromOneThread) {
  auto file = create("a");
  constexpr std::size_t kOperations = 20;  // more than the depth of the ring
  std::vector<BufferPool::Buffer> buffers;
  std::vector<DiskOperation> ops(kOperations);
  Batch batch;
  for (std::size_t i = 0; i < kOperations; ++i) {
    buffers.push_back(pool_.take());
    fill(buffers[i].span(), i);
    ops[i].kind = DiskOperation::Kind::write;
    ops[i].count = 1;
    ops[i].pieces[0] = {buffers[i].data(), buffers[i].size()};
    ops[i].offset = i * 256_KiB;
    ops[i].batch = &batch;
    batch.expect(1);
    file->start(ops[i]);
  }
  ASSERT_TRUE(batch.wait().ok());
  auto in = pool_.take();
  for (std::size_t i = 0; i < kOperations; ++i) {
    ASSERT_TRUE(file->read(i * 256_KiB, in.span()).ok());
    ASSERT_TRUE(std::equal(in.span().begin(), in.span().end(), buffers[i].data())) << i;
  }
}

TEST_P(DiskTest, StartedReadsSyncsAndFailures) {
  auto file = create("a");
  auto out = pool_.take(), in = pool_.take();
  fill(out.span(), 5);
  ASSERT_TRUE(file->write(0, out.span()).ok());
  Batch batch;
  std::array<DiskOperation, 3> ops;
  for (auto& op : ops) op.batch = &batch;
  ops[0].kind = DiskOperation::Kind::sync;
  ops[1].count = 2;  // 64 KiB, then the rest, behind each other
  ops[1].pieces = {iovec{in.data(), 64_KiB}, iovec{in.data() + 64_KiB, 192_KiB}};
  batch.expect(2);
  file->start(ops[0]);
  file->start(ops[1]);
  ASSERT_TRUE(batch.wait().ok());
  EXPECT_TRUE(std::equal(out.span().begin(), out.span().end(), in.data()));
  ops[2].count = 1;
  ops[2].offset = 1_MiB;
  ops[2].pieces[0] = {in.data(), kDiskPage};
  batch.expect(1);
  file->start(ops[2]);
  EXPECT_EQ(batch.wait().code(), Errc::io) << "behind the end";
}

TEST_P(DiskTest, ThreadsShareAFile) {
  auto file = create("a");
  std::vector<std::thread> threads;
  std::array<Status, 4> results;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto out = pool_.take(), in = pool_.take();
      for (std::uint64_t i = 0; i < 50 && results[t].ok(); ++i) {
        const std::uint64_t at = (i * 4 + t) * 256_KiB;
        fill(out.span().first(kDiskPage), at);
        results[t] = file->write(at, out.span());
        if (results[t].ok()) results[t] = file->read(at, in.span());
        if (!std::equal(in.data(), in.data() + 256_KiB, out.data())) {
          results[t] = Status(Errc::corrupt, "other bytes");
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Status& status : results) EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_P(DiskTest, HolesGiveSpaceBackAndReadAsZeros) {
  auto file = create("a");
  auto buffer = pool_.take();
  fill(buffer.span(), 3);
  ASSERT_TRUE(file->write(0, buffer.span()).ok());
  ASSERT_TRUE(file->sync().ok());
  const std::uint64_t before = file->allocated().value();
  ASSERT_TRUE(file->punch(16 * kDiskPage, 32 * kDiskPage).ok());
  EXPECT_LE(file->allocated().value() + 32 * kDiskPage, before);
  auto in = pool_.take();
  ASSERT_TRUE(file->read(0, in.span()).ok());
  std::byte* at = in.data() + 16 * kDiskPage;
  EXPECT_TRUE(std::all_of(at, at + 32 * kDiskPage, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_TRUE(std::equal(in.data(), at, buffer.data()));
  EXPECT_EQ(file->size().value(), 256_KiB);
}

TEST_P(DiskTest, ReserveExtendsAndTruncateCuts) {
  auto file = create("a");
  ASSERT_TRUE(file->reserve(0, 1_MiB).ok());
  EXPECT_EQ(file->size().value(), 1_MiB);
  ASSERT_TRUE(file->reserve(0, kDiskPage).ok());  // never shrinks
  EXPECT_EQ(file->size().value(), 1_MiB);
  auto in = pool_.take();
  ASSERT_TRUE(file->read(512_KiB, in.span()).ok());
  EXPECT_EQ(in.span()[77], std::byte{0});
  ASSERT_TRUE(file->truncate(kDiskPage).ok());
  EXPECT_EQ(file->size().value(), kDiskPage);
  EXPECT_EQ(file->read(kDiskPage, in.span()).code(), Errc::io);
}

TEST_P(DiskTest, NamesAreListedCreatedOnceAndRemoved) {
  create("b").reset();
  create("a").reset();
  EXPECT_EQ(disk_->open("a", OpenFile::create).code(), Errc::exists);
  EXPECT_EQ(disk_->open("c", OpenFile::existing).code(), Errc::not_found);
  EXPECT_TRUE(disk_->open("b", OpenFile::existing).ok());
  EXPECT_THAT(disk_->list().value(), ElementsAre("a", "b"));
  EXPECT_TRUE(disk_->remove("a").ok());
  EXPECT_EQ(disk_->remove("a").code(), Errc::not_found);
  EXPECT_TRUE(disk_->sync_directory().ok());
  EXPECT_THAT(disk_->list().value(), ElementsAre("b"));
}

TEST_P(DiskTest, SmallFilesAreReplacedWhole) {
  EXPECT_EQ(disk_->load("identity").code(), Errc::not_found);
  ASSERT_TRUE(disk_->save("identity", "one").ok());
  ASSERT_TRUE(disk_->save("identity", "another").ok());
  EXPECT_EQ(disk_->load("identity").value(), "another");
  EXPECT_THAT(disk_->list().value(), ElementsAre("identity"));
}

TEST_P(DiskTest, SpaceIsKnown) {
  const DiskSpace space = disk_->space().value();
  EXPECT_GT(space.capacity_bytes, 0u);
  EXPECT_LE(space.free_bytes, space.capacity_bytes);
  EXPECT_FALSE(disk_->describe().empty());
  EXPECT_FALSE(disk_->directory().empty());
}

TEST_P(DiskTest, LockedByOneAtATime) {
  ASSERT_TRUE(disk_->lock().ok());
  const auto again = [&]() -> Status {
    if (device_) return device_->disk()->lock();
    return open_disk(directory_ + "/d", {.way = GetParam().way, .depth = 8, .create = true})
        .value()
        ->lock();
  };
  const Status refused = again();
  EXPECT_EQ(refused.code(), Errc::busy);
  EXPECT_THAT(refused.text(), HasSubstr("in use by another process"));
  disk_.reset();
  EXPECT_TRUE(again().ok());
}

INSTANTIATE_TEST_SUITE_P(All, DiskTest,
                         testing::Values(Kind{"mem", nullptr, DiskOptions::Way::best},
                                         Kind{"posix_tmpfs", "/dev/shm", DiskOptions::Way::best},
                                         Kind{"uring_tmpfs", "/dev/shm", DiskOptions::Way::uring},
                                         Kind{"posix_direct", "/var/tmp", DiskOptions::Way::posix},
                                         Kind{"uring_direct", "/var/tmp", DiskOptions::Way::uring}),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(OpenDisk, ChoosesAndSaysSo) {
  std::string pattern = "/dev/shm/starlane-disk-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  EXPECT_EQ(open_disk(pattern, {}).value()->describe(), "posix, tmpfs");
  DiskOptions existing;
  existing.create = false;
  EXPECT_EQ(open_disk(pattern + "/none", existing).code(), Errc::not_found);
  EXPECT_FALSE(std::filesystem::exists(pattern + "/none"));
  std::filesystem::remove_all(pattern);
  EXPECT_EQ(open_disk(pattern + "/no/where", {}).code(), Errc::not_found);
}

TEST(BufferPool, BuffersAreAlignedAndReused) {
  BufferPool pool({.buffer_bytes = 5000, .limit = 2});
  std::byte* first = nullptr;
  {
    auto a = pool.take();
    first = a.data();
    EXPECT_EQ(a.size(), 8192u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % kDiskPage, 0u);
  }
  auto b = pool.take();
  EXPECT_EQ(b.data(), first);
  auto c = pool.take();
  EXPECT_NE(c.data(), b.data());
  std::thread waits([&] { EXPECT_EQ(pool.take().data(), first); });  // until b is given back
  b = BufferPool::Buffer();
  waits.join();
}

}  // namespace
}  // namespace starlane
