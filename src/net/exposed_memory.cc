#include "net/exposed_memory.h"

#include <cstring>

namespace starlane::net {
namespace {

Status outside() { return Status(Errc::invalid, "bytes outside the exposed memory"); }

Status no_way() { return Status(Errc::unsupported, "exposed memory that cannot be moved"); }

}  // namespace

Status ReachedMemory::move_out(std::uint64_t, MutableByteSpan) { return no_way(); }
Status ReachedMemory::move_in(std::uint64_t, ByteSpan) { return no_way(); }

Status ReachedMemory::pull(std::uint64_t offset, MutableByteSpan out) {
  if (!inside(offset, out.size())) return outside();
  const ByteSpan region = here();
  if (region.empty()) return move_out(offset, out);
  std::memcpy(out.data(), region.data() + offset, out.size());
  return {};
}

Status ReachedMemory::push(std::uint64_t offset, ByteSpan bytes) {
  if (!inside(offset, bytes.size())) return outside();
  const MutableByteSpan region = here();
  if (region.empty()) return move_in(offset, bytes);
  std::memcpy(region.data() + offset, bytes.data(), bytes.size());
  return {};
}

}  // namespace starlane::net
