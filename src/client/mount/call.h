// MountCore::call, for the files of this folder.
#pragma once
#include "client/mount/core.h"
#include "common/trace.h"

namespace starlane::client {

template <typename Request, typename Reply>
Status MountCore::call(const View& view,
                       Status (MetaService::*method)(const Call&, const Request&, Reply*),
                       Request& request, Reply* reply, std::uint64_t unique, std::uint64_t number) {
  constexpr int kAttachments =
      16;  // as many are lost only when something is wrong with all of them
  Status status;
  for (int tries = 0; tries < kAttachments; ++tries) {
    const Attachment under = SL_TRY(sessions_.attachment(view.branch(), unique));
    pb::On& on = *request.mutable_on();
    on.set_session(under.session.value);
    on.set_branch(view.branch().value);
    on.set_request(number);
    on.set_attachment_epoch(under.epoch);
    Call header;
    header.session = under.session;
    header.request = number;
    header.trace = current_trace();
    header.attachment_epoch = under.epoch;
    status = sessions_.retry().call(method, header, request, reply, unique);
    if (status.code() != Errc::fenced) return status;
    sessions_.fenced(view.branch(), under);
  }
  return Status(Errc::io, "the server ended every session this mount opened: " + status.text());
}

/// A node that the kernel knows and the server does not is one that was removed elsewhere.
inline Status node_status(const Status& status) {
  return status.code() == Errc::not_found ? Status(Errc::stale_handle, status.text()) : status;
}

}  // namespace starlane::client
