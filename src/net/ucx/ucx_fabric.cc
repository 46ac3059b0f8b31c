#include "net/ucx/ucx_fabric.h"

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <type_traits>
#include <utility>

#include "net/ucx/ucx_context.h"

namespace starlane::net {
namespace {

constexpr std::uint32_t kOfferMagic = 0x4d584c53;  // "SLXM"
constexpr std::uint32_t kOfferVersion = 1;
constexpr std::uint64_t kRegionLimit = 64_MiB;
constexpr std::uint32_t kNameLimit = 2048;  // of a worker's address, of a key
constexpr std::size_t kSlack = 256;  // UCX reads names by what they say, not by how long they are

struct OfferWire {  // then the worker's address, then the region's key
  std::uint32_t magic = kOfferMagic;
  std::uint32_t version = kOfferVersion;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t worker_length = 0;
  std::uint32_t key_length = 0;
};
static_assert(sizeof(OfferWire) == 32 && std::is_trivially_copyable_v<OfferWire>);

class UcxRegion final : public ExposedMemory {
 public:
  explicit UcxRegion(std::shared_ptr<UcxContext> ucx) : ucx_(std::move(ucx)) {}
  ~UcxRegion() override {
    if (memory_ != nullptr) (void)ucp_mem_unmap(ucx_->context(), memory_);
  }
  Status map(std::uint64_t bytes) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.length = bytes;
    params.flags = UCP_MEM_MAP_ALLOCATE;
    if (const auto s = ucp_mem_map(ucx_->context(), &params, &memory_); s != UCS_OK) {
      return ucx_error("a region of exposed memory", s);
    }
    ucp_mem_attr_t attributes{};
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    if (const auto s = ucp_mem_query(memory_, &attributes); s != UCS_OK)
      return ucx_error("region", s);
    region_ = {static_cast<std::byte*>(attributes.address), bytes};
    void* key = nullptr;
    std::size_t key_length = 0;
    if (const auto s = ucp_rkey_pack(ucx_->context(), memory_, &key, &key_length); s != UCS_OK) {
      return ucx_error("key of a region", s);
    }
    describe({static_cast<const char*>(key), key_length});
    ucp_rkey_buffer_release(key);
    return {};
  }
  MutableByteSpan region() override { return region_; }
  const std::string& offer() const override { return offer_; }
  void progress() override { ucx_->progress(); }

 private:
  void describe(std::string_view key) {
    OfferWire wire;
    wire.address = reinterpret_cast<std::uintptr_t>(region_.data());
    wire.length = region_.size();
    wire.worker_length = static_cast<std::uint32_t>(ucx_->address().size());
    wire.key_length = static_cast<std::uint32_t>(key.size());
    offer_.assign(reinterpret_cast<const char*>(&wire), sizeof wire);
    offer_ += ucx_->address();
    offer_ += key;
  }

  const std::shared_ptr<UcxContext> ucx_;
  ucp_mem_h memory_ = nullptr;
  MutableByteSpan region_;
  std::string offer_;
};

/// Whether a range lies in one System V segment of this process: what a peer named may be shorter
/// than it said.
bool in_shared_segment(const void* begin, std::uint64_t length) {
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t low = 0, high = 0;
    char access[8] = {};
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %7s", &low, &high, access) != 3)
      continue;
    if (first < low || first >= high) continue;
    return length <= high - first && std::string_view(access) == "rw-s" &&
           line.find("/SYSV") != std::string::npos;
  }
  return false;
}

class UcxReached final : public ReachedMemory {
 public:
  explicit UcxReached(std::shared_ptr<UcxContext> ucx) : ucx_(std::move(ucx)) {}
  ~UcxReached() override { close(); }

  Status connect(const OfferWire& wire, std::string worker, std::string key) {
    worker.resize(worker.size() + kSlack);
    key.resize(key.size() + kSlack);
    remote_ = wire.address;
    size_ = wire.length;
    if (map_here(key)) {
      if (in_shared_segment(here_, size_)) return {};
      return Status(Errc::invalid, "a peer's region is not what it said");
    }
    if (!ucx_->has_verbs()) return Status(Errc::unavailable, "ucx: no way to a peer's memory");
    return open(worker, key);
  }

  std::uint64_t size() const override { return size_; }
  MutableByteSpan here() override {
    return here_ == nullptr ? MutableByteSpan() : MutableByteSpan(here_, size_);
  }

 private:
  Status move_out(std::uint64_t offset, MutableByteSpan out) override {
    return ucx_->complete("get", [&](ucp_worker_h) {
      const ucp_request_param_t plain{};
      return ucp_get_nbx(endpoint_, out.data(), out.size(), remote_ + offset, key_, &plain);
    });
  }
  Status move_in(std::uint64_t offset, ByteSpan bytes) override {
    const ucp_request_param_t plain{};
    SL_TRY(ucx_->complete("put", [&](ucp_worker_h) {
      return ucp_put_nbx(endpoint_, bytes.data(), bytes.size(), remote_ + offset, key_, &plain);
    }));
    return ucx_->complete("flush",
                          [&](ucp_worker_h) { return ucp_ep_flush_nbx(endpoint_, &plain); });
  }
  /// Shared memory: the key names a segment. It is read by an endpoint to ourselves, since UCX dies
  /// of a damaged address of a worker, and none is needed.
  bool map_here(const std::string& key) {
    void* here = nullptr;
    const ucs_status_t status = ucx_->run([&](ucp_worker_h) {
      const ucs_status_t read = ucp_ep_rkey_unpack(ucx_->to_self(), key.data(), &key_);
      if (read != UCS_OK) {
        key_ = nullptr;
        return read;
      }
      const ucs_status_t mapped = ucp_rkey_ptr(key_, remote_, &here);
      if (mapped != UCS_OK) ucp_rkey_destroy(std::exchange(key_, nullptr));
      return mapped;
    });
    here_ = static_cast<std::byte*>(here);
    return status == UCS_OK;
  }
  /// Verbs. They tell of dead peers, if asked.
  Status open(const std::string& worker, const std::string& key) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(worker.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void*, ucp_ep_h, ucs_status_t) {
    };  // the operation fails, which says it all
    const ucs_status_t status = ucx_->run([&](ucp_worker_h own) {
      const ucs_status_t made = ucp_ep_create(own, &params, &endpoint_);
      if (made != UCS_OK) endpoint_ = nullptr;
      const ucs_status_t read =
          made == UCS_OK ? ucp_ep_rkey_unpack(endpoint_, key.data(), &key_) : made;
      if (read != UCS_OK) key_ = nullptr;
      return read;
    });
    if (status == UCS_OK) return {};
    return Status(Errc::unavailable, ucx_error("no way to a peer's memory", status).text());
  }
  void close() {
    (void)ucx_->run([this](ucp_worker_h) {
      if (key_ != nullptr) ucp_rkey_destroy(key_);
      if (endpoint_ == nullptr) return UCS_OK;
      const auto closing = ucp_ep_close_nb(endpoint_, UCP_EP_CLOSE_MODE_FORCE);
      if (UCS_PTR_IS_PTR(closing)) ucp_request_free(closing);  // it ends by itself
      return UCS_OK;
    });
  }
  const std::shared_ptr<UcxContext> ucx_;
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h key_ = nullptr;
  std::uint64_t remote_ = 0, size_ = 0;
  std::byte* here_ = nullptr;  // the region itself, where it is shared memory
};

class UcxFabric final : public MemoryFabric {
 public:
  explicit UcxFabric(std::shared_ptr<UcxContext> ucx) : ucx_(std::move(ucx)) {}

  Result<std::unique_ptr<ExposedMemory>> expose(std::uint64_t bytes) override {
    if (bytes == 0 || bytes > kRegionLimit)
      return Status(Errc::invalid, "a region of no possible size");
    auto region = std::make_unique<UcxRegion>(ucx_);
    SL_TRY(region->map(bytes));
    return std::unique_ptr<ExposedMemory>(std::move(region));
  }
  Result<std::unique_ptr<ReachedMemory>> reach(ByteSpan offer, UniqueFd) override {
    const Status malformed(Errc::invalid, "an offer of exposed memory that cannot be read");
    if (offer.size() < sizeof(OfferWire)) return malformed;
    const auto wire = load_little<OfferWire>(offer.data());
    const bool known = wire.magic == kOfferMagic && wire.version == kOfferVersion;
    const bool sound = wire.length != 0 && wire.length <= kRegionLimit && wire.worker_length != 0 &&
                       wire.worker_length <= kNameLimit && wire.key_length != 0 &&
                       wire.key_length <= kNameLimit;
    if (!known || !sound || offer.size() != sizeof wire + wire.worker_length + wire.key_length)
      return malformed;
    const std::string_view names = text_of(offer.subspan(sizeof wire));
    auto reached = std::make_unique<UcxReached>(ucx_);
    SL_TRY(reached->connect(wire, std::string(names.substr(0, wire.worker_length)),
                            std::string(names.substr(wire.worker_length))));
    return std::unique_ptr<ReachedMemory>(std::move(reached));
  }

 private:
  const std::shared_ptr<UcxContext> ucx_;
};

}  // namespace

Result<std::unique_ptr<MemoryFabric>> make_ucx_fabric() {
  return std::unique_ptr<MemoryFabric>(std::make_unique<UcxFabric>(SL_TRY(UcxContext::open())));
}

}  // namespace starlane::net
