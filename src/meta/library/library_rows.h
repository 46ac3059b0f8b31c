// Values of the rows that name volumes and data sets. docs/formats.md ("System rows") is the
// reference. Decoding checks what later code relies on and answers `corrupt`. Plain values; any
// thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/ids.h"
#include "meta/row_codec.h"

namespace starlane::meta {

/// v: which branch a volume's name means. Of one that is being deleted under deleting_name.
struct VolumeRow {
  RowHeader header;
  BranchId branch;
  WallTime created;
  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.branch, s.created);
  }
  std::string encode() const { return encode_row(*this); }
  static Result<VolumeRow> decode(std::string_view value);
};

enum class ImageState : std::uint8_t { publishing = 1, published = 2, deleting = 3 };

/// g: one version of a data set. Of one that is being deleted under deleting_name.
struct ImageRow {
  RowHeader header;
  BranchId branch;
  ImageState state = ImageState::publishing;
  WallTime created;
  std::uint64_t files = 0;
  std::uint64_t directories = 0;
  std::uint64_t bytes = 0;
  std::string source;
  std::string digest;
  std::string encode() const;
  static Result<ImageRow> decode(std::string_view value);
};

/// The name under which the record of a deleted volume or data set waits until its rows are gone;
/// sorts before all names that a person can give, and is none of them.
std::string deleting_name(BranchId branch, std::string_view name);
/// Whether it is one, and the name it was.
bool is_deleting_name(std::string_view name);
std::string_view name_before_deleting(std::string_view name);
/// First byte of each.
inline constexpr char kDeletingPrefix = '\x01';

}  // namespace starlane::meta
