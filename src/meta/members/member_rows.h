// Values of the rows of sessions, attachments and the cluster map. docs/formats.md ("System rows")
// is the reference. Decoding checks what later code relies on and answers `corrupt`. Plain values;
// any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "meta/row_codec.h"

namespace starlane::meta {

/// s: a session that lives. The row changes once, when it goes.
struct SessionRow {
  RowHeader header;
  WallTime opened;
  std::string host;
  std::string purpose;
  std::string nonce;
  std::string encode() const;
  static Result<SessionRow> decode(std::string_view value);
};

/// n, d, w: a number that another row's key leads to.
struct NumberRow {
  RowHeader header;
  std::uint64_t number = 0;
  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.number);
  }
  std::string encode() const { return encode_row(*this); }
  static Result<NumberRow> decode(std::string_view value);
};

/// k: how far a target's blocks were read back. Flag: a whole pass is wanted at once.
struct ScrubRow {
  RowHeader header;
  WallTime started;
  WallTime finished;  // the last whole pass
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
  std::uint64_t damaged_blocks = 0;
  std::string cursor;  // the block store's
  std::string encode() const;
  static Result<ScrubRow> decode(std::string_view value);
};
inline constexpr std::uint8_t kScrubWanted = 1;

enum class Lease : std::uint8_t {
  shared = 0,     // the session asks the server at every open
  exclusive = 1,  // it answers from its caches
  recalled = 2,   // exclusive until it gives it up or the lease time has passed since
};

/// a: a branch that a session has attached. header.epoch: the attachment's own, which fences
/// writes; header.flags: kAttachedReadOnly.
struct AttachmentRow {
  RowHeader header;
  Lease lease = Lease::shared;
  std::uint64_t wanted_ns = 0;    // when another session last wanted in: not given again soon after
  std::uint64_t recalled_ns = 0;  // when the lease was recalled
  WallTime since;
  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.lease, s.wanted_ns, s.recalled_ns, s.since);
  }
  std::string encode() const { return encode_row(*this); }
  static Result<AttachmentRow> decode(std::string_view value);
};

/// b: the session's side of an attachment. header.flags: kAttachmentGone; header.epoch: the first
/// of the attachment, which stays when another process of the session takes it over.
struct AttachedByRow {
  RowHeader header;
  template <typename Self, typename Codec>
  static void fields(Self&, Codec&) {}
  std::string encode() const { return encode_row(*this); }
};
/// The server ended the attachment, which the session has not acknowledged by detaching.
inline constexpr std::uint8_t kAttachmentGone = 1;

struct TargetRow {
  std::uint32_t id = 0;
  std::uint32_t weight = 0;
  std::uint8_t state = 0;  // TargetState
  std::uint64_t capacity_bytes = 0;
  std::string endpoint;
  std::string domain;
  friend bool operator==(const TargetRow&, const TargetRow&) = default;
};

/// m, key 0: the map in force. Older ones lie under their epochs.
struct MapRow {
  RowHeader header;                // epoch: of the map
  std::vector<TargetRow> targets;  // sorted by id
  std::string encode() const;
  static Result<MapRow> decode(std::string_view value);
};

}  // namespace starlane::meta
