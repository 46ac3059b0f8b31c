// What the tests of the block store share: directories that vanish, blocks whose bytes follow from
// their id, short calls.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "block/record.h"
#include "block/store.h"
#include "codec/crc32c.h"
#include "common/rng.h"
#include "disk/mem/mem_device.h"

namespace starlane::block {

class TempDirectory {
 public:
  explicit TempDirectory(const std::string& parent = "/dev/shm") {
    std::string pattern = parent + "/starlane-block-XXXXXX";
    SL_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Page-aligned, as buffers of clients are.
class Bytes {
 public:
  explicit Bytes(std::size_t n) : size_(n), data_(new (std::align_val_t(4096)) std::byte[n + 1]) {}
  MutableByteSpan span() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(4096)); }
  };
  std::size_t size_;
  std::unique_ptr<std::byte, Free> data_;
};

inline BlockId block_id(std::uint64_t slice, std::uint32_t index = 0, std::uint64_t owner = 7) {
  return {BranchId(owner), SliceId(slice), index};
}

inline std::vector<std::byte> page_of(const RecordHeader& header) {
  std::vector<std::byte> page(kPage);
  encode(header, page);
  return page;
}

/// The one content that a block of this id and length may ever have.
inline Bytes content_of(const BlockId& id, std::size_t length) {
  Bytes bytes(length);
  Rng rng(mix64(id.slice.value * 1000 + id.index) ^ length);
  std::size_t i = 0;
  for (; i + 8 <= length; i += 8) store_little(bytes.span().data() + i, rng.next());
  for (; i < length; ++i) bytes.span()[i] = static_cast<std::byte>(rng.next());
  return bytes;
}

/// Hides that the bytes lie in memory, as a connection does.
class PlainSource final : public BulkSource {
 public:
  explicit PlainSource(ByteSpan bytes) : memory_(bytes) {}
  std::uint64_t size() const override { return memory_.size(); }
  Status read(MutableByteSpan out) override { return memory_.read(out); }

 private:
  MemorySource memory_;
};
class PlainSink final : public BulkSink {
 public:
  Status write(ByteSpan bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return {};
  }
  ByteSpan bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

inline constexpr TargetId kTarget{3};

inline Status put(BlockService& store, const BlockId& id, ByteSpan bytes,
                  Safety safety = Safety::accepted, bool plain = false) {
  PutBlock request{kTarget, id, safety, checksum_units(bytes)};
  MemorySource memory(bytes);
  PlainSource hidden(bytes);
  return plain ? store.put({}, request, hidden) : store.put({}, request, memory);
}

inline Status put(BlockService& store, const BlockId& id, std::size_t length,
                  Safety safety = Safety::accepted) {
  return put(store, id, content_of(id, length).span(), safety);
}

/// ok: the range has the right bytes and checksums. Anything else but an error of the store is
/// corrupt "OTHER BYTES".
inline Status check_range(BlockService& store, const BlockId& id, std::size_t length,
                          std::uint32_t offset, std::uint32_t count, bool plain = false) {
  Bytes out(count);
  LandingSink memory(out.span());
  PlainSink hidden;
  const GetBlock request{kTarget, id, offset, count, true};
  const auto reply = plain ? store.get({}, request, hidden) : store.get({}, request, memory);
  if (!reply.ok()) return reply.status();
  const Bytes all = content_of(id, length);
  const ByteSpan want = ByteSpan(all.span()).subspan(offset, count);
  const ByteSpan got = plain ? hidden.bytes() : ByteSpan(out.span());
  if (!std::ranges::equal(want, got)) return Status(Errc::corrupt, "OTHER BYTES");
  std::vector<std::uint32_t> checksums;
  for (std::size_t at = offset; at < offset + count;) {
    const std::size_t next = std::min<std::size_t>(round_down(at, 64_KiB) + 64_KiB, offset + count);
    checksums.push_back(crc32c(ByteSpan(all.span()).subspan(at, next - at)));
    at = next;
  }
  if (reply->checksums != checksums) return Status(Errc::corrupt, "OTHER CHECKSUMS");
  return {};
}

inline Status check(BlockService& store, const BlockId& id, std::size_t length) {
  return check_range(store, id, length, 0, static_cast<std::uint32_t>(length));
}

inline StoreOptions options_for(const std::string& directory) {
  StoreOptions options;
  options.cluster = "test-cluster";
  options.targets.emplace_back();
  options.targets[0].id = kTarget;
  options.targets[0].directory = directory;
  options.tuning.segments.segment_bytes = 16_MiB;
  options.tuning.segments.reserve_step = 1_MiB;
  options.tuning.index_cache_bytes = 4_MiB;
  options.buffers = 4;
  return options;
}

/// A store on a device in memory; its index lies in `index_directory`.
inline StoreOptions options_for(MemDevice& device, const std::string& index_directory) {
  StoreOptions options = options_for("");
  options.targets[0].device = device.disk();
  options.targets[0].index_directory = index_directory;
  options.tuning.index_interval = std::chrono::hours(1);
  return options;
}

inline std::unique_ptr<Store> open_or_die(StoreOptions options) {
  auto store = Store::open(std::move(options));
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  SL_CHECK(store.ok());
  return std::move(*store);
}

inline std::vector<BlockInfo> list_all(BlockService& store, std::uint32_t limit = 100) {
  std::vector<BlockInfo> all;
  std::string cursor;
  do {
    auto page = store.list({}, kTarget, cursor, limit);
    EXPECT_TRUE(page.ok()) << page.status().to_string();
    if (!page.ok()) break;
    all.insert(all.end(), page->blocks.begin(), page->blocks.end());
    cursor = page->cursor;
  } while (!cursor.empty());
  return all;
}

inline std::vector<BlockId> verify_all(BlockService& store, std::uint32_t limit = 100) {
  std::vector<BlockId> bad;
  std::string cursor;
  do {
    auto page = store.verify({}, kTarget, cursor, limit);
    EXPECT_TRUE(page.ok()) << page.status().to_string();
    if (!page.ok()) break;
    for (const BlockInfo& info : page->blocks) bad.push_back(info.block);
    cursor = page->cursor;
  } while (!cursor.empty());
  return bad;
}

}  // namespace starlane::block
