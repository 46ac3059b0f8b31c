// POSIX access control lists as the kernel hands them over (the value of system.posix_acl_access
// and system.posix_acl_default): checked, and kept in agreement with the mode, of which a file's
// list is the long form. Who may do what is the kernel's to decide. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace starlane::meta {

inline constexpr std::string_view kAccessAcl = "system.posix_acl_access";
inline constexpr std::string_view kDefaultAcl = "system.posix_acl_default";

class Acl {
 public:
  /// invalid: not what Linux takes for a list; unsupported: of another version.
  static Result<Acl> decode(std::string_view value);
  std::string encode() const;

  /// Says no more than a mode can: it is not kept.
  bool is_mode_only() const { return entries_.size() == 3; }
  /// The permission bits that show it: the group's are the mask, where there is one.
  std::uint32_t permissions() const;
  /// chmod: the owner's, the mask's (or group's) and the others' become these.
  void change_permissions(std::uint32_t permissions);
  /// The list, as a directory's default, for what is created there with `permissions`: entries that
  /// a mode can say are cut down to what was asked for.
  Acl for_new(std::uint32_t permissions) const;

 private:
  enum class Tag : std::uint16_t {
    owner = 0x01,
    user = 0x02,
    group = 0x04,
    named_group = 0x08,
    mask = 0x10,
    other = 0x20
  };
  struct Entry {
    Tag tag{};
    std::uint16_t permissions = 0;
    std::uint32_t id = 0;
  };
  static Status check(const std::vector<Entry>& entries);
  const Entry* find(Tag tag) const;
  /// What the group's bits of the mode stand for.
  Tag group_class() const { return find(Tag::mask) != nullptr ? Tag::mask : Tag::group; }

  std::vector<Entry> entries_;
};

}  // namespace starlane::meta
