// Under which session and attachment a branch may be read and changed now: what the bytes of files
// (FileIo) must know of sessions. Implemented by client::Sessions (session/), which renews both
// when the server has ended them. Any thread.
#pragma once
#include <cstdint>

#include "common/ids.h"
#include "common/status.h"

namespace starlane::client {

/// Value. What was written under one attachment must not be committed under another: the server has
/// fenced it.
struct Attachment {
  SessionId session;
  std::uint64_t epoch = 0;  // for Call.attachment_epoch and On.attachment_epoch
  bool frozen = false;      // a published image: its maps never change

  friend bool operator==(const Attachment&, const Attachment&) = default;
};

class Attachments {
 public:
  virtual ~Attachments() = default;

  /// The present attachment. Blocks only while a lost session is being replaced (`unique` as in
  /// FileIo::interrupt; 0: cannot be interrupted). Errors: stale_handle (the branch is gone or not
  /// attached here), interrupted, unavailable (the client is stopping).
  virtual Result<Attachment> attachment(BranchId branch, std::uint64_t unique = 0) = 0;

  /// A call under it was answered `fenced`: starts renewal, returns at once. Idempotent.
  virtual void fenced(BranchId branch, const Attachment& under) = 0;
};

}  // namespace starlane::client
