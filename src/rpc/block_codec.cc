#include "rpc/block_codec.h"

#include <algorithm>

namespace starlane::rpc {
namespace {

constexpr std::size_t kTextLimit = 4096;  // of a cursor, a directory, a device

template <typename T>
void append(Buffer& out, const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

void append_text(Buffer& out, std::string_view text) {
  const ByteSpan bytes = bytes_of(text);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void append_numbers(Buffer& out, const std::vector<std::uint32_t>& numbers) {
  const ByteSpan bytes = std::as_bytes(std::span(numbers));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

/// Takes values off the front of a payload, or says that it is too short.
class Reader {
 public:
  explicit Reader(ByteSpan bytes) : bytes_(bytes) {}

  template <typename T>
  Result<T> take() {
    if (bytes_.size() < sizeof(T)) return too_short();
    const T value = load_little<T>(bytes_.data());
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  Result<std::string> take_text(std::uint64_t length) {
    if (length > bytes_.size() || length > kTextLimit) return too_short();
    std::string text(text_of(bytes_.first(length)));
    bytes_ = bytes_.subspan(length);
    return text;
  }
  Result<std::vector<std::uint32_t>> take_numbers(std::uint64_t count) {
    if (count > bytes_.size() / sizeof(std::uint32_t)) return too_short();
    std::vector<std::uint32_t> numbers(count);
    if (count != 0) std::memcpy(numbers.data(), bytes_.data(), count * sizeof(std::uint32_t));
    bytes_ = bytes_.subspan(count * sizeof(std::uint32_t));
    return numbers;
  }
  template <typename T>
  bool holds(std::uint64_t count) const {
    return count <= bytes_.size() / sizeof(T);
  }
  static Status too_short() {
    return Status(Errc::protocol, "a block message is shorter than it says");
  }

 private:
  ByteSpan bytes_;
};

}  // namespace

void encode(const PutBlock& request, Buffer& out) {
  WirePut wire;
  wire.target = request.target.value;
  wire.index = request.block.index;
  wire.owner = request.block.owner.value;
  wire.slice = request.block.slice.value;
  wire.checksums = static_cast<std::uint32_t>(request.unit_checksums.size());
  wire.safety = static_cast<std::uint8_t>(request.safety);
  append(out, wire);
  append_numbers(out, request.unit_checksums);
}

void encode(const GetBlock& request, Buffer& out) {
  WireGet wire;
  wire.target = request.target.value;
  wire.index = request.block.index;
  wire.owner = request.block.owner.value;
  wire.slice = request.block.slice.value;
  wire.offset = request.offset;
  wire.length = request.length;
  wire.check = request.check ? 1 : 0;
  append(out, wire);
}

void encode(TargetId target, Buffer& out) { append(out, WireTarget{target.value, 0}); }

void encode(const RemoveSlice& request, Buffer& out) {
  append(out, WireRemoveSlice{request.target.value, 0, request.owner.value, request.slice.value});
}

void encode(const ListBlocks& request, Buffer& out) {
  append(out, WireList{request.target.value, request.limit,
                       static_cast<std::uint32_t>(request.cursor.size()), 0});
  append_text(out, request.cursor);
}

void encode(const GetBlockReply& reply, Buffer& out) {
  append(out, WireGetReply{static_cast<std::uint32_t>(reply.checksums.size()), 0});
  append_numbers(out, reply.checksums);
}

void encode(const BlockListing& reply, Buffer& out) {
  append(out, WireListReply{static_cast<std::uint32_t>(reply.blocks.size()),
                            static_cast<std::uint32_t>(reply.cursor.size())});
  for (const BlockInfo& info : reply.blocks) {
    append(out, WireBlock{info.block.owner.value, info.block.slice.value, info.block.index,
                          info.length});
  }
  append_text(out, reply.cursor);
}

void encode(const std::vector<TargetInfo>& reply, Buffer& out) {
  append(out, WireTargetsReply{static_cast<std::uint32_t>(reply.size()), 0});
  for (const TargetInfo& info : reply) {
    const std::string_view directory = std::string_view(info.directory).substr(0, kTextLimit);
    const std::string_view device = std::string_view(info.device).substr(0, kTextLimit);
    WireTargetInfo wire;
    wire.target = info.target.value;
    wire.healthy = info.healthy ? 1 : 0;
    wire.capacity_bytes = info.capacity_bytes;
    wire.free_bytes = info.free_bytes;
    wire.stored_bytes = info.stored_bytes;
    wire.blocks = info.blocks;
    wire.directory_length = static_cast<std::uint32_t>(directory.size());
    wire.device_length = static_cast<std::uint32_t>(device.size());
    append(out, wire);
    append_text(out, directory);
    append_text(out, device);
  }
}

Result<PutBlock> decode_put(ByteSpan payload, std::uint64_t bulk_length) {
  Reader reader(payload);
  const WirePut wire = SL_TRY(reader.take<WirePut>());
  if (bulk_length == 0 || bulk_length > kBlockSize) {
    return Status(Errc::invalid, "a block has 1 to " + std::to_string(kBlockSize) + " bytes, not " +
                                     std::to_string(bulk_length));
  }
  if (wire.safety > static_cast<std::uint8_t>(Safety::durable)) {
    return Status(Errc::invalid, "an unknown level of safety, " + std::to_string(wire.safety));
  }
  if (wire.checksums != divide_up(bulk_length, kChecksumUnit)) {
    return Status(Errc::invalid, std::to_string(wire.checksums) + " checksums for a block of " +
                                     std::to_string(bulk_length) + " bytes");
  }
  PutBlock request;
  request.target = TargetId(wire.target);
  request.block = {BranchId(wire.owner), SliceId(wire.slice), wire.index};
  request.safety = static_cast<Safety>(wire.safety);
  request.unit_checksums = SL_TRY(reader.take_numbers(wire.checksums));
  return request;
}

Result<GetBlock> decode_get(ByteSpan payload) {
  Reader reader(payload);
  const WireGet wire = SL_TRY(reader.take<WireGet>());
  if (std::uint64_t{wire.offset} + wire.length > kBlockSize) {
    return Status(Errc::invalid,
                  "a range beyond the largest block: " + std::to_string(wire.offset) + " + " +
                      std::to_string(wire.length));
  }
  GetBlock request;
  request.target = TargetId(wire.target);
  request.block = {BranchId(wire.owner), SliceId(wire.slice), wire.index};
  request.offset = wire.offset;
  request.length = wire.length;
  request.check = wire.check != 0;
  return request;
}

Result<TargetId> decode_target(ByteSpan payload) {
  return TargetId(SL_TRY(Reader(payload).take<WireTarget>()).target);
}

Result<RemoveSlice> decode_remove_slice(ByteSpan payload) {
  const WireRemoveSlice wire = SL_TRY(Reader(payload).take<WireRemoveSlice>());
  return RemoveSlice{TargetId(wire.target), BranchId(wire.owner), SliceId(wire.slice)};
}

Result<ListBlocks> decode_list(ByteSpan payload) {
  Reader reader(payload);
  const WireList wire = SL_TRY(reader.take<WireList>());
  ListBlocks request{TargetId(wire.target), std::min(wire.limit, kListLimit), {}};
  request.cursor = SL_TRY(reader.take_text(wire.cursor_length));
  return request;
}

Result<GetBlockReply> decode_get_reply(ByteSpan payload) {
  Reader reader(payload);
  const WireGetReply wire = SL_TRY(reader.take<WireGetReply>());
  return GetBlockReply{SL_TRY(reader.take_numbers(wire.checksums))};
}

Result<BlockListing> decode_listing(ByteSpan payload) {
  Reader reader(payload);
  const WireListReply wire = SL_TRY(reader.take<WireListReply>());
  if (!reader.holds<WireBlock>(wire.blocks)) return Reader::too_short();
  BlockListing listing;
  listing.blocks.reserve(wire.blocks);
  for (std::uint32_t i = 0; i < wire.blocks; ++i) {
    const WireBlock block = SL_TRY(reader.take<WireBlock>());
    listing.blocks.push_back(
        {{BranchId(block.owner), SliceId(block.slice), block.index}, block.length});
  }
  listing.cursor = SL_TRY(reader.take_text(wire.cursor_length));
  return listing;
}

Result<std::vector<TargetInfo>> decode_targets(ByteSpan payload) {
  Reader reader(payload);
  const WireTargetsReply wire = SL_TRY(reader.take<WireTargetsReply>());
  if (!reader.holds<WireTargetInfo>(wire.targets)) return Reader::too_short();
  std::vector<TargetInfo> targets(wire.targets);
  for (TargetInfo& info : targets) {
    const WireTargetInfo one = SL_TRY(reader.take<WireTargetInfo>());
    info.target = TargetId(one.target);
    info.healthy = one.healthy != 0;
    info.capacity_bytes = one.capacity_bytes;
    info.free_bytes = one.free_bytes;
    info.stored_bytes = one.stored_bytes;
    info.blocks = one.blocks;
    info.directory = SL_TRY(reader.take_text(one.directory_length));
    info.device = SL_TRY(reader.take_text(one.device_length));
  }
  return targets;
}

}  // namespace starlane::rpc
