#include "rpc/meta_stub.h"

#include <algorithm>
#include <concepts>

namespace starlane::rpc {
namespace {

enum MetaMethod : std::uint16_t {
#define SL_NUMBER(number, method, Request, Reply) k_##method = number,
  SL_META_METHODS(SL_NUMBER)
#undef SL_NUMBER
};

// Read-only; or the second run finds the first one's work done and says the same.
constexpr std::uint16_t kRepeatable[] = {
    k_open_session, k_heartbeat,      k_list_sessions,  k_volume_list,     k_volume_get,
    k_image_begin,  k_image_list,     k_image_get,      k_cluster_map,     k_register_targets,
    k_lookup,       k_get_attributes, k_read_directory, k_get_xattr,       k_list_xattrs,
    k_stat_fs,      k_read_link,      k_file_map,       k_flush,           k_dead_slices,
    k_settle_dead,  k_long_chunks,    k_housekeeping,   k_fsck_references, k_test_lock,
    k_stop_waiting, k_await_locks,
};

/// The request's number in its session, for calls on a branch: the server answers the same number
/// once.
template <typename Message>
bool recorded(const Message& message) {
  if constexpr (requires {
                  { message.on().request() } -> std::convertible_to<std::uint64_t>;
                }) {
    return message.on().request() != 0;
  } else {
    return false;
  }
}

}  // namespace

bool repeatable_meta_method(std::uint16_t method) {
  return std::find(std::begin(kRepeatable), std::end(kRepeatable), method) != std::end(kRepeatable);
}

#define SL_DEFINE(number, method, Request, Reply)                                               \
  Status MetaStub::method(const Call& call, const pb::Request& request, pb::Reply* reply) {     \
    return exchange(call, number, request, repeatable_meta_method(number) || recorded(request), \
                    reply);                                                                     \
  }
SL_META_METHODS(SL_DEFINE)
#undef SL_DEFINE

Status MetaStub::exchange(const Call& call, std::uint16_t method,
                          const google::protobuf::Message& request, bool repeatable,
                          google::protobuf::Message* reply) {
  const std::size_t size = request.ByteSizeLong();
  if (size > kMetaRequestLimit) {
    return Status(Errc::too_big, "a metadata request of " + std::to_string(size) + " bytes; " +
                                     std::to_string(kMetaRequestLimit) + " may travel");
  }
  std::vector<std::byte> payload(size);
  request.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(payload.data()));
  rpc::Request frame;
  frame.kind = FrameKind::meta_request;
  frame.method = method;
  frame.payload = payload;
  frame.repeatable = repeatable;
  Channel& channel = method == k_await_locks ? waits_ : channel_;
  auto answer = channel.call(call, frame);
  if (!answer.ok()) return answer.status();
  SL_TRY(answer->status());
  if (reply->ParseFromArray(answer->payload().data(), static_cast<int>(answer->payload().size())))
    return {};
  answer->distrust();
  return Status(Errc::protocol,
                channel.endpoint().to_string() + " sent an answer that cannot be decoded");
}

}  // namespace starlane::rpc
