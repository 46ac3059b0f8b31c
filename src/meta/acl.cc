#include "meta/acl.h"

#include <algorithm>

#include "common/bytes.h"

namespace starlane::meta {
namespace {

// As <linux/posix_acl_xattr.h> has it: a version, then entries of tag, permissions and id.
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kHeaderSize = 4;
constexpr std::size_t kEntrySize = 8;

Status malformed() { return {Errc::invalid, "not a POSIX access control list"}; }

}  // namespace

Result<Acl> Acl::decode(std::string_view value) {
  if (value.size() < kHeaderSize || (value.size() - kHeaderSize) % kEntrySize != 0)
    return malformed();
  if (load_little<std::uint32_t>(value.data()) != kVersion)
    return {Errc::unsupported, "an access control list of an unknown version"};
  Acl acl;
  for (std::size_t at = kHeaderSize; at < value.size(); at += kEntrySize) {
    const char* raw = value.data() + at;
    acl.entries_.push_back({static_cast<Tag>(load_little<std::uint16_t>(raw)),
                            load_little<std::uint16_t>(raw + 2),
                            load_little<std::uint32_t>(raw + 4)});
  }
  SL_TRY(check(acl.entries_));
  return acl;
}

// In this order: owner, users, group, groups, mask (which names need), others.
Status Acl::check(const std::vector<Entry>& entries) {
  const auto count = [&](Tag tag) {
    return std::count_if(entries.begin(), entries.end(),
                         [tag](const Entry& entry) { return entry.tag == tag; });
  };
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (entry.permissions > 7) return malformed();
    if (i > 0 && entries[i - 1].tag > entry.tag) return malformed();
  }
  const auto names = count(Tag::user) + count(Tag::named_group);
  const auto masks = count(Tag::mask);
  const auto known = count(Tag::owner) + count(Tag::group) + count(Tag::other) + names + masks;
  const bool once =
      count(Tag::owner) == 1 && count(Tag::group) == 1 && count(Tag::other) == 1 && masks <= 1;
  if (!once || (names > 0 && masks == 0)) return malformed();
  return known == static_cast<std::ptrdiff_t>(entries.size()) ? Status() : malformed();
}

std::string Acl::encode() const {
  std::string value(kHeaderSize + entries_.size() * kEntrySize, '\0');
  store_little(value.data(), kVersion);
  char* raw = value.data() + kHeaderSize;
  for (const Entry& entry : entries_) {
    store_little(raw, static_cast<std::uint16_t>(entry.tag));
    store_little(raw + 2, entry.permissions);
    store_little(raw + 4, entry.id);
    raw += kEntrySize;
  }
  return value;
}

const Acl::Entry* Acl::find(Tag tag) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [tag](const Entry& entry) { return entry.tag == tag; });
  return found == entries_.end() ? nullptr : &*found;
}

std::uint32_t Acl::permissions() const {
  const std::uint32_t owner = find(Tag::owner)->permissions;
  const std::uint32_t group = find(group_class())->permissions;
  const std::uint32_t other = find(Tag::other)->permissions;
  return owner << 6 | group << 3 | other;
}

void Acl::change_permissions(std::uint32_t permissions) {
  const Tag group = group_class();
  for (Entry& entry : entries_) {
    if (entry.tag == Tag::owner) entry.permissions = permissions >> 6 & 7;
    if (entry.tag == group) entry.permissions = permissions >> 3 & 7;
    if (entry.tag == Tag::other) entry.permissions = permissions & 7;
  }
}

Acl Acl::for_new(std::uint32_t permissions) const {
  Acl acl = *this;
  acl.change_permissions(permissions & this->permissions());
  return acl;
}

}  // namespace starlane::meta
