#include "disk/mem/mem_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starlane {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::byte> page(char c) { return std::vector<std::byte>(kDiskPage, std::byte(c)); }

std::string read_back(MemDevice& device, const std::string& name, std::size_t pages) {
  auto disk = device.disk();
  auto file = disk->open(name, OpenFile::existing);
  if (!file.ok()) return "";
  std::string bytes(pages * kDiskPage, '\0');
  if (!(*file)->read(0, std::as_writable_bytes(std::span(bytes))).ok()) return "short";
  std::string firsts;
  for (std::size_t i = 0; i < pages; ++i) firsts += bytes[i * kDiskPage];
  return firsts;
}

TEST(MemDevice, DropKeepsExactlyWhatWasSynced) {
  MemDevice device({});
  auto disk = device.disk();
  auto file = std::move(disk->open("f", OpenFile::create)).value();
  ASSERT_TRUE(disk->sync_directory().ok());
  ASSERT_TRUE(file->write(0, page('a')).ok());
  ASSERT_TRUE(file->write(kDiskPage, page('b')).ok());
  ASSERT_TRUE(file->sync().ok());
  ASSERT_TRUE(file->write(0, page('x')).ok());
  ASSERT_TRUE(file->punch(kDiskPage, kDiskPage).ok());
  auto unsynced = std::move(disk->open("g", OpenFile::create)).value();
  device.crash(MemDevice::Crash::drop);
  EXPECT_EQ(read_back(device, "f", 2), "ab");
  EXPECT_THAT(device.disk()->list().value(), ElementsAre("f"));
  EXPECT_EQ(file->write(0, page('y')).code(), Errc::io) << "a disk of the life before";
}

TEST(MemDevice, TearKeepsSyncedBytesAndAnyMixOfOthers) {
  bool saw_old = false, saw_new = false, saw_mixed = false;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    MemDevice device({.seed = seed});
    auto disk = device.disk();
    auto file = std::move(disk->open("f", OpenFile::create)).value();
    ASSERT_TRUE(disk->sync_directory().ok());
    ASSERT_TRUE(file->write(0, page('a')).ok());
    ASSERT_TRUE(file->write(kDiskPage, page('k')).ok());
    ASSERT_TRUE(file->sync().ok());
    ASSERT_TRUE(file->write(0, page('x')).ok());
    device.crash(MemDevice::Crash::tear);
    auto again = device.disk();
    auto back = std::move(again->open("f", OpenFile::existing)).value();
    std::string bytes(2 * kDiskPage, '\0');
    ASSERT_TRUE(back->read(0, std::as_writable_bytes(std::span(bytes))).ok());
    ASSERT_EQ(bytes.substr(kDiskPage), std::string(kDiskPage, 'k'));
    const bool old = bytes.substr(0, kDiskPage).find('a') != std::string::npos;
    const bool fresh = bytes.substr(0, kDiskPage).find('x') != std::string::npos;
    saw_old |= old;
    saw_new |= fresh;
    saw_mixed |= old && fresh;
  }
  EXPECT_TRUE(saw_old && saw_new && saw_mixed);
}

TEST(MemDevice, TheCutComesWithTheNthChange) {
  MemDevice device({});
  auto disk = device.disk();
  auto file = std::move(disk->open("f", OpenFile::create)).value();
  ASSERT_TRUE(disk->sync_directory().ok());
  EXPECT_EQ(device.changes(), 2u);
  device.cut_after(2);
  EXPECT_TRUE(file->write(0, page('a')).ok());
  EXPECT_FALSE(device.is_cut());
  EXPECT_EQ(file->write(0, page('b')).code(), Errc::io);
  EXPECT_TRUE(device.is_cut());
  std::vector<std::byte> out(kDiskPage);
  EXPECT_EQ(file->read(0, out).code(), Errc::io);
  EXPECT_FALSE(disk->list().ok());
  device.crash(MemDevice::Crash::drop);
  EXPECT_EQ(read_back(device, "f", 0), "");
}

TEST(MemDevice, AnUnsyncedRemovalComesBack) {
  MemDevice device({});
  auto disk = device.disk();
  auto file = std::move(disk->open("f", OpenFile::create)).value();
  ASSERT_TRUE(file->write(0, page('a')).ok());
  ASSERT_TRUE(file->sync().ok());
  ASSERT_TRUE(disk->sync_directory().ok());
  ASSERT_TRUE(disk->remove("f").ok());
  EXPECT_THAT(disk->list().value(), IsEmpty());
  device.crash(MemDevice::Crash::drop);
  EXPECT_EQ(read_back(device, "f", 1), "a");
}

TEST(MemDevice, FailsOnDemandAndWhenFull) {
  MemDevice device({.capacity_bytes = 2 * kDiskPage});
  auto disk = device.disk();
  auto file = std::move(disk->open("f", OpenFile::create)).value();
  device.fail_next(MemDevice::Action::write, Errc::io);
  EXPECT_EQ(file->write(0, page('a')).code(), Errc::io);
  EXPECT_TRUE(file->write(0, page('a')).ok());
  EXPECT_TRUE(file->write(kDiskPage, page('a')).ok());
  EXPECT_EQ(file->write(2 * kDiskPage, page('a')).code(), Errc::no_space);
  EXPECT_TRUE(file->write(0, page('b')).ok()) << "overwriting takes no space";
  EXPECT_TRUE(file->punch(0, kDiskPage).ok());
  EXPECT_TRUE(file->write(2 * kDiskPage, page('a')).ok());
}

TEST(MemDevice, RefusesMisalignedTransfersWhenAsked) {
  MemDevice device({.traits = {.alignment = kDiskPage, .in_memory = false}});
  auto disk = device.disk();
  auto file = std::move(disk->open("f", OpenFile::create)).value();
  alignas(kDiskPage) static std::array<std::byte, 2 * kDiskPage> bytes{};
  EXPECT_TRUE(file->write(0, ByteSpan(bytes).first(kDiskPage)).ok());
  EXPECT_EQ(file->write(512, ByteSpan(bytes).first(kDiskPage)).code(), Errc::invalid);
  EXPECT_EQ(file->write(0, ByteSpan(bytes).first(100)).code(), Errc::invalid);
  EXPECT_EQ(file->write(0, ByteSpan(bytes).subspan(8, kDiskPage)).code(), Errc::invalid);
}

}  // namespace
}  // namespace starlane
