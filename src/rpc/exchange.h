// One call on one connection: the frames of the request, its bulk, and those of the reply. Blocks;
// one thread.
#pragma once
#include "rpc/channel.h"

namespace starlane::rpc {

struct Exchanged {
  Status way;         // not ok: the connection can no longer be used
  bool sent = false;  // the server may have begun to execute the request
  FrameHeader header;
  ByteSpan payload;  // in line.buffer
};

Exchanged exchange(Line& line, const Call& call, const Request& request, std::uint64_t mount_nonce);

}  // namespace starlane::rpc
