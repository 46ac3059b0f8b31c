// What this machine offers Starlane, and which of its fast paths that allows: read, and for what
// the kernel does not say, tried for a moment (a mount on a directory of its own, a file in the
// site's directory). Changes nothing. Blocks for a second at most; any thread.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "common/status.h"

namespace starlane::doctor {

enum class Verdict : std::uint8_t {
  ok,
  warning,  // works, and something is slower or weaker than it could be
  missing,  // something cannot work
};

struct Check {
  std::string topic;  // "fuse", "limits", …
  std::string what;   // "passthrough"
  Verdict verdict = Verdict::ok;
  std::string found;   // for people
  std::string remedy;  // one sentence; empty when ok
};

struct Options {
  std::filesystem::path root = "/";      // of /proc, /sys, /etc: another one in tests
  std::vector<std::string> directories;  // where data lies or is to lie: their space and devices
  bool try_mount = true;                 // mounts for a moment to hear what the kernel offers
};

/// In the order in which they are best read.
std::vector<Check> examine(const Options& options);

}  // namespace starlane::doctor
