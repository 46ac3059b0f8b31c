// Frames on a connection: sealing what is sent, and checking what came before a byte of it is
// believed. Pure functions and blocking ones on a connection that the caller owns.
#pragma once
#include <vector>

#include "common/bulk.h"
#include "net/transport.h"
#include "proto/call.h"
#include "proto/frame.h"

namespace starlane::rpc {

/// Sets the lengths of exposure and payload and both checks. The lengths must be within the kind's
/// limits.
void seal(FrameHeader& header, ByteSpan exposure, ByteSpan payload);

/// protocol: no frame of ours, another major version, damaged, or longer than its kind may be.
Status check_header(const FrameHeader& header);
Status check_body(const FrameHeader& header, ByteSpan body);

/// Receives and checks a header.
Result<FrameHeader> receive_header(net::Connection& connection, Deadline deadline);
/// Receives and checks what lies between header and bulk into `body`, which keeps its memory for
/// the next.
Status receive_body(net::Connection& connection, const FrameHeader& header, Deadline deadline,
                    std::vector<std::byte>& body);

/// The parts of a checked body.
ByteSpan exposure_in(const FrameHeader& header, ByteSpan body);
ByteSpan payload_in(const FrameHeader& header, ByteSpan body);

/// What travels of a call; the deadline as the time left.
void put_call(const Call& call, FrameHeader& header);
Call call_of(const FrameHeader& header);

inline ByteSpan image_of(const FrameHeader& header) { return std::as_bytes(std::span(&header, 1)); }

/// An error's text as it travels: cut to kErrorTextLimit.
std::string_view capped(std::string_view text);
/// The Status of a reply; a code that this program does not know is `io`.
Status status_of(const FrameHeader& header, ByteSpan payload);

}  // namespace starlane::rpc
