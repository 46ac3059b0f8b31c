// fallocate: lengthening, and holes and zeros, which are entries of kind zero. Space is not
// reserved: blocks are never overwritten, so a reservation could promise nothing.
#include <algorithm>

#include "meta/contents.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"
#include "meta/protection.h"
#include "meta/truncate.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kKeepSize = 1;
constexpr std::uint32_t kPunchHole = 2;
constexpr std::uint32_t kZeroRange = 16;

Status check_fallocate(const pb::FallocateRequest& request) {
  const std::uint32_t mode = request.mode();
  const bool known = mode == 0 || mode == kKeepSize || mode == (kPunchHole | kKeepSize) ||
                     mode == kZeroRange || mode == (kZeroRange | kKeepSize);
  if (!known) return {Errc::unsupported, "this kind of fallocate is not supported"};
  if (request.length() == 0) return {Errc::invalid, "fallocate needs a length"};
  if (request.offset() > kMaxLength || request.length() > kMaxLength - request.offset()) {
    return {Errc::file_too_large, "a file has at most 2^58 bytes"};
  }
  return {};
}

/// Zeros [first, last) in the chunks that have rows, as many as a step may change; answers where it
/// stopped.
Result<std::uint64_t> zero_step(Change& change, Node& node, std::uint64_t first,
                                std::uint64_t last) {
  const KeyRange range =
      slices_of(change.branch(), node.inode, first / kChunkSize, divide_up(last, kChunkSize));
  const std::size_t limit = change.context.options.chunks_a_step;
  const std::vector<kv::Row> rows = SL_TRY(change.t.scan({range.first, range.last, limit}));
  Contents contents(change, node.inode, node.row.version);
  std::uint64_t done = last;
  for (const kv::Row& row : rows) {
    SL_TRY(contents.load(row));
    const SlicesKey key = SL_TRY(parse_slices_key(row.key));
    const std::uint64_t start = key.chunk * kChunkSize;
    const std::uint64_t from = std::max(first, start) - start;
    const std::uint64_t to = std::min(last - start, kChunkSize);
    contents.chunk(key.chunk).zero(static_cast<std::uint32_t>(from),
                                   static_cast<std::uint32_t>(to));
    if (rows.size() == limit) done = std::min(last, start + kChunkSize);
  }
  const std::int64_t bytes = SL_TRY(contents.store());
  charge_contents(change, node, bytes);
  if (!rows.empty()) node.row.version += 1;
  return done;
}

/// `*from` is where zeroing goes on; with the last step the length is set as well.
Status run_fallocate(Change& change, const pb::FallocateRequest& request, const Rows& rows,
                     std::uint64_t* from, pb::Attributes* reply) {
  if (!rows[0]) return {Errc::not_found, "no such file"};
  Node node = SL_TRY(node_of(InodeId{request.inode()}, rows[0]));
  if (node.row.is_directory()) return {Errc::is_directory, "a directory"};
  if (!node.row.is_regular()) return {Errc::invalid, "only files have contents"};
  const bool grows_only = (request.mode() & ~kKeepSize) == 0;
  SL_TRY(grows_only ? may_touch(node.row) : may_change(node.row));
  const std::uint64_t end = request.offset() + request.length();
  const bool zeroing = (request.mode() & (kPunchHole | kZeroRange)) != 0;
  std::uint64_t done = end;
  if (zeroing) {
    const std::uint64_t last = std::min(end, node.row.length);
    if (*from < last) done = SL_TRY(zero_step(change, node, *from, last));
    if (done == last) done = end;
  }
  if (done == end && (request.mode() & kKeepSize) == 0 && end > node.row.length) {
    node.row.length = end;
    node.row.version += 1;
  }
  node.row.mtime = change.now;
  touch_ctime(node.row, change.now);
  put_node(change, node);
  put_attributes(node.inode, node.row, {}, reply);
  *from = done;
  return {};
}

}  // namespace

Status op_fallocate(Context& context, const Call&, const pb::FallocateRequest& request,
                    pb::Attributes* reply) {
  SL_TRY(check_fallocate(request));
  Access access = access_of(request.on());
  access.request = 0;  // done twice it does the same
  const std::vector<std::string> keys = {inode_key(access.branch, InodeId{request.inode()})};
  const std::uint64_t end = request.offset() + request.length();
  std::uint64_t at = request.offset();
  while (at < end) {
    std::uint64_t reached = at;
    SL_TRY(change_branch(context, access, number_of(Method::fallocate), keys, reply,
                         [&](Change& change, Rows& rows) {
                           reached = at;
                           return run_fallocate(change, request, rows, &reached, reply);
                         }));
    at = reached;
  }
  return {};
}

}  // namespace starlane::meta
