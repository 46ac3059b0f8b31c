// Where data lies or is to lie: free space, and how a block target would reach the device.
#include <sys/statvfs.h>
#include <unistd.h>

#include "disk/open_disk.h"
#include "doctor/host.h"

namespace starlane::doctor {
namespace {

constexpr const char* kTopic = "space";

void check_free(const std::string& directory, Checks& out) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0) {
    out.push_back({kTopic, directory, Verdict::missing, "cannot be looked at",
                   "Make the directory, or let this user enter it."});
    return;
  }
  const std::uint64_t size = std::uint64_t{status.f_blocks} * status.f_frsize;
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  const bool little = free < (std::uint64_t{1} << 30) || free < size / 20;
  out.push_back(
      {kTopic, directory, little ? Verdict::warning : Verdict::ok,
       size_text(free) + " free of " + size_text(size),
       little ? "Free some space: metadata refuses changes when the last twentieth is gone." : ""});
}

/// By opening a device in a directory of its own, as a block target does.
void check_way(const std::string& directory, Checks& out) {
  std::string scratch = directory + "/starlane-doctor-XXXXXX";
  if (::mkdtemp(scratch.data()) == nullptr) {
    out.push_back({kTopic, "device of " + directory, Verdict::warning, "cannot be tried",
                   "Run as the user that owns the directory."});
    return;
  }
  const auto disk = open_disk(scratch, {});
  Check check{kTopic, "device of " + directory, Verdict::ok, "", ""};
  if (disk.ok()) {
    check.found = (*disk)->describe();
  } else {
    check.verdict = Verdict::missing;
    check.found = disk.status().text();
    check.remedy = "A block target could not work here: choose another directory.";
  }
  out.push_back(check);
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
}

}  // namespace

void check_space(const Options& options, Checks& out) {
  for (const std::string& directory : options.directories) {
    check_free(directory, out);
    check_way(directory, out);
  }
}

}  // namespace starlane::doctor
