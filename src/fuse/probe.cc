#include "fuse/probe.h"

#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "common/errno.h"
#include "fuse/memory_vfs.h"
#include "fuse/protocol.h"
#include "fuse/session.h"

namespace starlane::fuse {

Result<KernelOffer> probe_kernel() {
  char place[] = "/tmp/starlane-probe-XXXXXX";
  if (::mkdtemp(place) == nullptr) return system_error("cannot make a directory in /tmp", errno);
  MemoryVfs vfs({});
  SessionOptions options;
  options.mountpoint = place;
  auto session = Session::start(vfs, options);
  KernelOffer offer;
  if (session.ok()) {
    const InitIn& heard = (*session)->heard();
    const std::uint64_t flags =
        heard.flags | ((heard.flags & kInitExt) != 0 ? std::uint64_t{heard.flags2} << 32 : 0);
    offer.major = heard.major;
    offer.minor = heard.minor;
    offer.passthrough = (flags & kInitPassthrough) != 0;
    offer.resend = (flags & kInitHasResend) != 0;
    offer.direct_maps = (flags & kInitDirectIoAllowMmap) != 0;
    offer.over_io_uring = (flags & kInitOverIoUring) != 0;
    offer.passthrough_works = (*session)->features().passthrough;
    offer.raised_read_ahead = (*session)->raised_read_ahead();
    static_cast<void>((*session)->stop());
  }
  ::rmdir(place);
  if (!session.ok()) return session.status();
  return offer;
}

}  // namespace starlane::fuse
