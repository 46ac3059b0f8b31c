// What every kind of exposed memory must do, both ends in this process.
#include "net/exposed_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "common/rng.h"
#include "net/shm/shm_fabric.h"
#ifdef SL_HAVE_UCX
#include "net/ucx/ucx_fabric.h"
#endif

namespace starlane::net {
namespace {

std::vector<std::byte> noise(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  Rng rng(seed);
  for (auto& byte : bytes) byte = static_cast<std::byte>(rng.next());
  return bytes;
}

/// The descriptor as the server gets it.
UniqueFd passed(const ExposedMemory& exposed) {
  if (exposed.descriptor() < 0) return {};
  return UniqueFd(::fcntl(exposed.descriptor(), F_DUPFD_CLOEXEC, 0));
}

std::vector<std::string> kinds() {
#ifdef SL_HAVE_UCX
  return {"shm", "ucx"};
#else
  return {"shm"};
#endif
}

class ExposedMemoryTest : public testing::TestWithParam<std::string> {
 protected:
  static std::unique_ptr<MemoryFabric> make() {
#ifdef SL_HAVE_UCX
    if (GetParam() == "ucx") return std::move(make_ucx_fabric()).value();
#endif
    return make_shm_fabric();
  }
  const std::unique_ptr<MemoryFabric> client_ = make(), server_ = make();
};
INSTANTIATE_TEST_SUITE_P(Of, ExposedMemoryTest, testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param; });

TEST_P(ExposedMemoryTest, TheServerMovesBytesIntoAndOutOfTheRegion) {
  auto exposed = client_->expose(4_MiB);
  ASSERT_TRUE(exposed.ok()) << exposed.status().to_string();
  auto reached = server_->reach(bytes_of((*exposed)->offer()), passed(**exposed));
  ASSERT_TRUE(reached.ok()) << reached.status().to_string();
  EXPECT_EQ((*reached)->size(), 4_MiB);
  const auto bytes = noise(1'000'003, 1);
  ASSERT_TRUE((*reached)->push(77, bytes).ok());
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), (*exposed)->region().begin() + 77));
  std::vector<std::byte> back(bytes.size());
  ASSERT_TRUE((*reached)->pull(77, back).ok());
  EXPECT_TRUE(back == bytes);
}

TEST_P(ExposedMemoryTest, NothingOutsideTheRegionIsTouched) {
  auto exposed = client_->expose(64_KiB);
  auto reached = server_->reach(bytes_of((*exposed)->offer()), passed(**exposed));
  ASSERT_TRUE(reached.ok());
  std::vector<std::byte> some(10);
  EXPECT_EQ((*reached)->push(64_KiB - 9, some).code(), Errc::invalid);
  EXPECT_EQ((*reached)->pull(64_KiB + 1, some).code(), Errc::invalid);
  EXPECT_EQ((*reached)->pull(~std::uint64_t{0}, some).code(), Errc::invalid);
  EXPECT_TRUE((*reached)->push(64_KiB - 10, some).ok());
}

TEST_P(ExposedMemoryTest, ALateServerWritesIntoNothingOfTheClients) {
  auto exposed = client_->expose(1_MiB);
  auto reached = server_->reach(bytes_of((*exposed)->offer()), passed(**exposed));
  ASSERT_TRUE(reached.ok());
  *exposed = nullptr;  // the client gave up
  EXPECT_TRUE(
      (*reached)->push(0, noise(1_MiB, 2)).ok());  // into a segment that nobody else has any more
}

TEST_P(ExposedMemoryTest, ManyRegionsComeAndGo) {
  for (int i = 0; i < 40; ++i) {
    auto exposed = client_->expose(64_KiB);
    ASSERT_TRUE(exposed.ok());
    auto reached = server_->reach(bytes_of((*exposed)->offer()), passed(**exposed));
    ASSERT_TRUE(reached.ok());
    const auto bytes = noise(64_KiB, static_cast<std::uint64_t>(i));
    ASSERT_TRUE((*reached)->push(0, bytes).ok());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), (*exposed)->region().begin()));
    if (i % 2 == 0) *exposed = nullptr;
  }
}

TEST_P(ExposedMemoryTest, WhatIsMappedHereIsTheRegion) {
  auto exposed = client_->expose(64_KiB);
  ASSERT_TRUE(exposed.ok());
  auto reached = server_->reach(bytes_of((*exposed)->offer()), passed(**exposed));
  ASSERT_TRUE(reached.ok());
  const MutableByteSpan here = (*reached)->here();
  if (here.empty()) GTEST_SKIP() << "it is moved, not mapped";
  ASSERT_EQ(here.size(), 64_KiB);
  const auto bytes = noise(64_KiB, 5);
  std::ranges::copy(bytes, here.begin());
  EXPECT_TRUE(std::ranges::equal((*exposed)->region(), bytes));
}

TEST(ShmTest, MemoryThatItsOwnerCanTakeAwayIsRefused) {
  const auto fabric = make_shm_fabric();
  const std::string offer = (*fabric->expose(64_KiB))->offer();
  const auto memory = [](unsigned flags, int seals, off_t size) {
    UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | flags));
    EXPECT_EQ(::ftruncate(fd.get(), size), 0);
    if (seals != 0) {
      EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    }
    return fd;
  };
  constexpr int kBoth = F_SEAL_SHRINK | F_SEAL_GROW;
  const auto reach = [&](UniqueFd fd) { return fabric->reach(bytes_of(offer), std::move(fd)); };
  EXPECT_TRUE(reach(memory(MFD_ALLOW_SEALING, kBoth, 4096)).ok());
  EXPECT_EQ(reach(memory(MFD_ALLOW_SEALING, 0, 4096)).code(), Errc::invalid);
  EXPECT_EQ(reach(memory(MFD_ALLOW_SEALING, F_SEAL_GROW, 4096)).code(), Errc::invalid);
  EXPECT_EQ(reach(memory(MFD_ALLOW_SEALING, kBoth, 0)).code(), Errc::invalid);
  EXPECT_EQ(reach(memory(MFD_ALLOW_SEALING, kBoth, 1_GiB)).code(), Errc::invalid);
  EXPECT_FALSE(reach(memory(MFD_ALLOW_SEALING, kBoth | F_SEAL_WRITE, 4096)).ok());
  EXPECT_EQ(reach(UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC))).code(), Errc::invalid);
  EXPECT_EQ(reach(UniqueFd()).code(), Errc::invalid);
  EXPECT_EQ(fabric->reach(bytes_of("starlane shared memory 9"), memory(MFD_ALLOW_SEALING, kBoth, 9))
                .code(),
            Errc::invalid);
}

}  // namespace
}  // namespace starlane::net
