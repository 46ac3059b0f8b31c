// Memory, huge pages, and the file systems in memory.
#include <sys/statvfs.h>
#include <unistd.h>

#include "doctor/host.h"

namespace starlane::doctor {
namespace {

constexpr const char* kTopic = "memory";

void check_total(const Host& host, Checks& out) {
  const auto total = host.field("proc/meminfo", "MemTotal");
  const auto free = host.field("proc/meminfo", "MemAvailable");
  if (!total || !free) return;
  const bool tight = *free < (std::uint64_t{2} << 30);
  out.push_back(
      {kTopic, "available", tight ? Verdict::warning : Verdict::ok,
       size_text(*free) + " of " + size_text(*total),
       tight ? "A site takes up to two fifths of memory (`starlane up --help` says how much): end "
               "others, or lower --node-cache, --block-cache, --dirty and --meta-cache."
             : ""});
}

/// The node cache asks for huge pages on its own tmpfs, which `deny` alone forbids.
void check_shared_huge_pages(const Host& host, Checks& out) {
  const auto shared = host.choice("sys/kernel/mm/transparent_hugepage/shmem_enabled");
  Check check{kTopic, "huge pages of tmpfs", Verdict::ok, "", ""};
  if (!shared) {
    check.verdict = Verdict::warning;
    check.found = "this kernel has no transparent huge pages";
    check.remedy =
        "Use a kernel with CONFIG_TRANSPARENT_HUGEPAGE: mapped files then take 512 times fewer "
        "page faults.";
  } else if (*shared == "deny") {
    check.verdict = Verdict::warning;
    check.found = "shmem_enabled=deny";
    check.remedy =
        "echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled (the kernel's default) "
        "lets the node cache ask for them itself.";
  } else {
    check.found = "possible (shmem_enabled=" + *shared + "; the node cache asks for them itself)";
  }
  out.push_back(check);
}

void check_anonymous_huge_pages(const Host& host, Checks& out) {
  const auto enabled = host.choice("sys/kernel/mm/transparent_hugepage/enabled");
  if (!enabled) return;
  const bool never = *enabled == "never";
  out.push_back(
      {kTopic, "transparent huge pages", never ? Verdict::warning : Verdict::ok, *enabled,
       never ? "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled helps large buffers."
             : ""});
}

void check_shm(Checks& out) {
  struct statvfs status {};
  if (::statvfs("/dev/shm", &status) != 0) {
    out.push_back({kTopic, "/dev/shm", Verdict::warning, "not there",
                   "Mount a tmpfs there: UCX moves data between processes through it."});
    return;
  }
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  const bool little = free < (std::uint64_t{64} << 20);
  out.push_back(
      {kTopic, "/dev/shm", little ? Verdict::warning : Verdict::ok, size_text(free) + " free",
       little ? "Give the container more (--shm-size 1g): --ucx and data loaders need it." : ""});
}

void check_tmpfs(const Host& host, Checks& out) {
  const std::string known = host.text("proc/filesystems").value_or("");
  const bool there = known.find("tmpfs") != std::string::npos;
  out.push_back({kTopic, "tmpfs", there ? Verdict::ok : Verdict::missing,
                 there ? "known" : "not known",
                 there ? "" : "Use a kernel with CONFIG_TMPFS: the node cache lies on one."});
}

}  // namespace

void check_memory(const Host& host, Checks& out) {
  check_total(host, out);
  check_shared_huge_pages(host, out);
  check_anonymous_huge_pages(host, out);
  check_tmpfs(host, out);
  if (host.is_this_machine()) check_shm(out);
}

}  // namespace starlane::doctor
