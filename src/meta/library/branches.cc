#include "meta/library/branches.h"

#include <algorithm>

#include "meta/members/attachments.h"
#include "meta/members/member_rows.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kMaxLibraryName = 63;
constexpr std::uint64_t kViewLimit = std::uint64_t{1} << 24;

bool lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

}  // namespace

Status check_library_name(std::string_view what, std::string_view name) {
  const auto fits = [](char c) { return lower_or_digit(c) || c == '.' || c == '_' || c == '-'; };
  if (name.empty() || name.size() > kMaxLibraryName || !lower_or_digit(name.front()) ||
      !std::all_of(name.begin(), name.end(), fits)) {
    return {
        Errc::invalid,
        std::string(what) +
            " has 1 to 63 characters out of a-z, 0-9, '.', '_' and '-', of which the first is a "
            "letter or a digit"};
  }
  return {};
}

Result<BranchIds> new_branch_ids(Context& context) {
  BranchIds ids;
  ids.branch = BranchId{SL_TRY(context.branches.take(BranchId{}))};
  const std::uint64_t view = SL_TRY(context.views.take(BranchId{}));
  if (view >= kViewLimit) {
    return Status(Errc::no_space,
                  "this cluster has given out all numbers for volumes and data sets");
  }
  ids.view = ViewId{static_cast<std::uint32_t>(view)};
  return ids;
}

void put_branch(Context& context, kv::Transaction& t, const BranchIds& ids, HeadRow head,
                const Root& root) {
  head.view = ids.view;
  t.expect(head_key(ids.branch), kv::kAbsent);
  t.put(head_key(ids.branch), head.encode());
  t.put(view_key(ids.view), NumberRow{{}, ids.branch.value}.encode());
  put_root(t, ids.branch, head, root, context.clock.wall());
}

Status start_deleting(kv::Transaction& t, BranchId branch) {
  const std::optional<kv::Row> row = SL_TRY(t.get(head_key(branch)));
  HeadRow head = SL_TRY(need<HeadRow>(row, "volume"));
  for (const Attached& one : SL_TRY(attached_to(t, branch))) {
    t.expect(attachment_key(branch, one.session), one.version);
    t.del(attachment_key(branch, one.session));
    t.put(attached_by_key(one.session, branch),
          AttachedByRow{{kAttachmentGone, one.row.header.epoch}}.encode());
  }
  head.state = BranchState::deleting;
  head.writer = SessionId{};
  count_attachments(head, {});
  t.expect(head_key(branch), row->version);
  t.put(head_key(branch), head.encode());
  return {};
}

}  // namespace starlane::meta
