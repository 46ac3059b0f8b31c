// The most that a FUSE server can give on this machine: one that answers from memory, over the same
// front end with the same settings as a mount, and does nothing else. For benchmarks. Start and
// stop from one thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"

namespace starlane::wire {

struct CeilingFile {
  std::string name;          // in the root of the mount
  std::string path;          // of the file on this machine whose bytes it shows
  std::uint64_t offset = 0;  // of a page
  std::uint64_t length = 0;
};

class Ceiling {
 public:
  /// Mounts. The files' bytes are mapped and brought into memory first; beside them the mount takes
  /// new files, which live in memory.
  static Result<std::unique_ptr<Ceiling>> start(const std::string& mountpoint,
                                                const std::vector<CeilingFile>& files);
  virtual ~Ceiling() = default;
  virtual Status stop() = 0;
};

}  // namespace starlane::wire
