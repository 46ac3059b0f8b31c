// Payloads of the data channel: plain little-endian structs, all sizes fixed, followed by arrays
// whose lengths they name. A reader checks every count against the bytes it has and skips bytes
// behind those it knows. Format: docs/formats.md, "Data channel". Values; any thread.
#pragma once
#include <cstdint>
#include <type_traits>

namespace starlane {

/// FrameHeader::method of a block_request. Append only.
enum class BlockMethod : std::uint16_t {
  put = 1,
  get = 2,
  sync = 3,
  remove_slice = 4,
  list = 5,
  verify = 6,
  targets = 7,
};

struct WirePut {  // then checksums x u32; the block is the frame's bulk
  std::uint32_t target = 0;
  std::uint32_t index = 0;
  std::uint64_t owner = 0;
  std::uint64_t slice = 0;
  std::uint32_t checksums = 0;
  std::uint8_t safety = 0;
  std::uint8_t reserved[3] = {};
};
static_assert(sizeof(WirePut) == 32 && std::is_trivially_copyable_v<WirePut>);

struct WireGet {
  std::uint32_t target = 0;
  std::uint32_t index = 0;
  std::uint64_t owner = 0;
  std::uint64_t slice = 0;
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
  std::uint8_t check = 0;
  std::uint8_t reserved[7] = {};
};
static_assert(sizeof(WireGet) == 40 && std::is_trivially_copyable_v<WireGet>);

struct WireGetReply {  // then checksums x u32
  std::uint32_t checksums = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(WireGetReply) == 8 && std::is_trivially_copyable_v<WireGetReply>);

struct WireTarget {  // sync; targets (target 0)
  std::uint32_t target = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(WireTarget) == 8 && std::is_trivially_copyable_v<WireTarget>);

struct WireRemoveSlice {
  std::uint32_t target = 0;
  std::uint32_t reserved = 0;
  std::uint64_t owner = 0;
  std::uint64_t slice = 0;
};
static_assert(sizeof(WireRemoveSlice) == 24 && std::is_trivially_copyable_v<WireRemoveSlice>);

struct WireList {  // list, verify; then the cursor
  std::uint32_t target = 0;
  std::uint32_t limit = 0;
  std::uint32_t cursor_length = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(WireList) == 16 && std::is_trivially_copyable_v<WireList>);

struct WireListReply {  // then blocks x WireBlock, then the cursor
  std::uint32_t blocks = 0;
  std::uint32_t cursor_length = 0;
};
static_assert(sizeof(WireListReply) == 8 && std::is_trivially_copyable_v<WireListReply>);

struct WireBlock {
  std::uint64_t owner = 0;
  std::uint64_t slice = 0;
  std::uint32_t index = 0;
  std::uint32_t length = 0;
};
static_assert(sizeof(WireBlock) == 24 && std::is_trivially_copyable_v<WireBlock>);

struct WireTargetsReply {  // then targets x (WireTargetInfo, directory, device)
  std::uint32_t targets = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(WireTargetsReply) == 8 && std::is_trivially_copyable_v<WireTargetsReply>);

struct WireTargetInfo {
  std::uint32_t target = 0;
  std::uint8_t healthy = 0;
  std::uint8_t reserved[3] = {};
  std::uint64_t capacity_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t blocks = 0;
  std::uint32_t directory_length = 0;
  std::uint32_t device_length = 0;
};
static_assert(sizeof(WireTargetInfo) == 48 && std::is_trivially_copyable_v<WireTargetInfo>);

inline constexpr std::uint32_t kListLimit = 32768;  // blocks in one reply: fits kBlockReplyLimit

}  // namespace starlane
