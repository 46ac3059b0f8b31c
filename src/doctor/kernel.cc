// What the kernel's FUSE can do, and whether this user may use it.
#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "common/unique_fd.h"
#include "doctor/host.h"
#include "fuse/probe.h"
#include "fuse/quick_wake.h"

namespace starlane::doctor {
namespace {

constexpr const char* kTopic = "fuse";

void check_release(Checks& out) {
  utsname name{};
  ::uname(&name);
  int major = 0, minor = 0;
  std::sscanf(name.release, "%d.%d", &major, &minor);
  Check check{kTopic, "kernel", Verdict::ok, name.release, ""};
  if (std::pair(major, minor) < std::pair(5, 4)) {
    check.verdict = Verdict::missing;
    check.remedy = "Run Linux 5.4 or later: FUSE 7.31 is needed.";
  } else if (std::pair(major, minor) < std::pair(6, 9)) {
    check.verdict = Verdict::warning;
    check.remedy = "Linux 6.9 or later maps large files without a copy in the page cache.";
  }
  out.push_back(check);
}

void check_device(Checks& out) {
  Check check{kTopic, "/dev/fuse", Verdict::ok, "can be opened", ""};
  const UniqueFd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!device) {
    check.verdict = Verdict::missing;
    check.found = std::strerror(errno);
    check.remedy = errno == EACCES || errno == EPERM
                       ? "Let this user open it (chmod 666 /dev/fuse), or run as root."
                       : "Load the module (modprobe fuse), or start the container with --device "
                         "/dev/fuse --cap-add SYS_ADMIN.";
  }
  out.push_back(check);
}

std::string in_path(const char* program) {
  std::string path = std::getenv("PATH") != nullptr ? std::getenv("PATH") : "/usr/bin:/bin";
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    const std::string file = path.substr(at, end - at) + "/" + program;
    if (::access(file.c_str(), X_OK) == 0) return file;
    at = end + 1;
  }
  return {};
}

void check_unprivileged(const Host& host, Checks& out) {
  if (::geteuid() == 0) return;
  const std::string helper = in_path("fusermount3");
  out.push_back({kTopic, "fusermount3", helper.empty() ? Verdict::missing : Verdict::ok,
                 helper.empty() ? "not found" : helper,
                 helper.empty() ? "Install the package fuse3, or run as root." : ""});
  const std::string conf = "\n" + host.text("etc/fuse.conf").value_or("") + "\n";
  const bool shared = conf.find("\nuser_allow_other\n") != std::string::npos;
  out.push_back(
      {kTopic, "allow_other", shared ? Verdict::ok : Verdict::warning,
       shared ? "allowed in /etc/fuse.conf" : "only this user would see a mount",
       shared ? "" : "Put the line user_allow_other into /etc/fuse.conf, or run as root."});
  out.push_back({kTopic, "privileges", Verdict::warning, "not root",
                 "As root, mounts have passthrough, raised read-ahead and --bind."});
}

void add(Checks& out, const char* what, bool there, const char* yes, const char* no,
         const char* remedy) {
  out.push_back({kTopic, what, there ? Verdict::ok : Verdict::warning, there ? yes : no,
                 there ? "" : remedy});
}

void check_offer(Checks& out) {
  const auto offer = fuse::probe_kernel();
  if (!offer.ok()) {
    out.push_back({kTopic, "mount", Verdict::missing, offer.status().text(),
                   "A mount must work before anything else here matters."});
    return;
  }
  out.push_back(
      {kTopic, "mount", Verdict::ok,
       "works, protocol " + std::to_string(offer->major) + "." + std::to_string(offer->minor), ""});
  if (offer->passthrough_works)
    out.push_back({kTopic, "passthrough", Verdict::ok,
                   "on: large read-only files are mapped straight from huge pages", ""});
  else
    out.push_back({kTopic, "passthrough", Verdict::warning,
                   offer->passthrough ? "offered, and refused to this process"
                                      : "this kernel or this user has none",
                   offer->passthrough
                       ? "Give the process CAP_SYS_ADMIN in the first user namespace (in a "
                         "container: --privileged)."
                       : "Run Linux 6.9 or later as root; until then pages go through the page "
                         "cache."});
  add(out, "resend", offer->resend, "offered", "not offered by this kernel",
      "Linux 6.9 or later sends requests again that a daemon which died had read.");
  add(out, "direct maps", offer->direct_maps, "shared maps of files open past the page cache",
      "files open past the page cache cannot be mapped shared", "Linux 6.6 or later allows that.");
  // Not a fast path of ours, and no warning: 1 MiB requests gain nothing from it.
  out.push_back({kTopic, "io_uring transport", Verdict::ok,
                 offer->over_io_uring ? "offered; not used: no gain at 1 MiB a request"
                                      : "not offered; not used anyway",
                 ""});
  add(out, "read-ahead", offer->raised_read_ahead, "raised to 4 MiB",
      "left at the kernel's default",
      "Run as root, or have /sys mounted writable, for faster cold reads.");
}

void check_fuse_limits(const Host& host, Checks& out) {
  const auto pages = host.number("proc/sys/fs/fuse/max_pages_limit");
  if (pages && *pages < 256)
    out.push_back({kTopic, "max_pages_limit", Verdict::warning, std::to_string(*pages) + " pages",
                   "sysctl fs.fuse.max_pages_limit=256 allows requests of 1 MiB."});
  const auto timeout = host.number("proc/sys/fs/fuse/max_request_timeout");
  if (timeout && *timeout != 0)
    out.push_back(
        {kTopic, "max_request_timeout", Verdict::warning, std::to_string(*timeout) + " s",
         "sysctl fs.fuse.max_request_timeout=0: else the kernel ends a mount whose servers are "
         "away for so long."});
  const auto background = host.number("sys/module/fuse/parameters/max_user_bgreq");
  if (background && *background < 64 && ::geteuid() != 0)
    out.push_back({kTopic, "max_user_bgreq", Verdict::warning, std::to_string(*background),
                   "Raise /sys/module/fuse/parameters/max_user_bgreq for parallel reads."});
  if (!pages || *pages >= 256)
    out.push_back({kTopic, "limits of fs.fuse", Verdict::ok,
                   pages ? std::to_string(*pages) + " pages a request" : "the kernel's own", ""});
}

void check_wake(const Host& host, Checks& out) {
  if (host.number("sys/module/haltpoll/parameters/guest_halt_poll_ns").value_or(1) == 0) {
    out.push_back({kTopic, "wake-up", Verdict::warning,
                   "processors of this virtual machine sleep at once, and are woken by its host",
                   "echo 200000 > /sys/module/haltpoll/parameters/guest_halt_poll_ns: small "
                   "requests then take half as long. On up to 16 processors a mount of root keeps "
                   "them awake while requests come fast (--no-quick-wake)."});
    return;
  }
  const auto latency = fuse::wanted_wake_latency_us();
  out.push_back({kTopic, "wake-up", Verdict::ok,
                 latency.ok() ? "processors are asked to wake within " + std::to_string(*latency) +
                                    " us while requests come fast"
                              : latency.status().text(),
                 ""});
}

void check_erofs(const Host& host, Checks& out) {
  const std::string known = host.text("proc/filesystems").value_or("");
  const bool there = known.find("\terofs\n") != std::string::npos;
  out.push_back({kTopic, "erofs", Verdict::ok,
                 there ? "the kernel can serve a published version by itself (dataset mount)"
                       : "not loaded; `dataset mount` loads it where this kernel has it",
                 ""});
}

}  // namespace

void check_kernel(const Host& host, const Options& options, Checks& out) {
  if (host.is_this_machine()) {
    check_release(out);
    check_device(out);
    check_unprivileged(host, out);
  }
  check_fuse_limits(host, out);
  check_wake(host, out);
  check_erofs(host, out);
  if (options.try_mount) check_offer(out);
}

}  // namespace starlane::doctor
