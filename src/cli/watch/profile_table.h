// What `profile` shows: rows of operations by process and kind, as mounts serve them, summed and
// compared. Values; one thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "metrics/meter.h"

namespace starlane::cli {

struct ProfileRow {
  std::uint32_t pid = 0;
  std::string process, operation;
  std::uint64_t errors = 0, bytes = 0;
  metrics::Counted took;
};

class ProfileTable {
 public:
  /// The page of one mount. corrupt: it is none.
  Status add(std::string_view page);
  /// What has come since `before`.
  ProfileTable since(const ProfileTable& before) const;

  /// Most time first.
  std::vector<ProfileRow> by_operation() const;
  std::vector<ProfileRow> by_process() const;
  std::vector<ProfileRow> rows() const;
  /// Operations that the mounts could not count.
  std::uint64_t dropped() const { return dropped_; }

 private:
  std::vector<ProfileRow> rows_;
  std::uint64_t dropped_ = 0;
};

}  // namespace starlane::cli
