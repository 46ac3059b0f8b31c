// commit: what a flush wrote becomes the file's, all slices with length, version and times in one
// transaction, and with what was set on the file meanwhile. The bits of the slices in their
// reservation make it happen once; O_APPEND finds its place here.
#include <algorithm>
#include <map>

#include "meta/contents.h"
#include "meta/escrow.h"
#include "meta/given.h"
#include "meta/messages.h"
#include "meta/ops/ops.h"
#include "meta/protection.h"
#include "meta/truncate.h"

namespace starlane::meta {
namespace {

constexpr int kMaxSlices = 4096;  // in one commit
constexpr std::size_t kMaxReservations = 256;

/// A slice as the client sent it.
struct Written {
  std::uint64_t position = 0;  // in the file, or beyond its end when appending
  Entry entry;
  std::uint64_t batch = 0;               // 0: none
  const std::string* content = nullptr;  // of an inline slice
};

struct Reservation {
  std::uint64_t bits = 0;  // of this commit's slices
  kv::Version version = kv::kAbsent;
  ReservedRow row;
};

struct Plan {
  std::vector<Written> written;
  std::map<std::uint64_t, Reservation> reservations;  // by batch
  std::vector<std::uint32_t> chunks;  // touched, ascending; of appends not known yet
  std::uint64_t begin = kMaxLength;   // of the first byte written
  std::uint64_t end = 0;              // of the last one
};

Status check_slice(const pb::NewSlice& slice, const Entry& entry) {
  if (slice.batch() == 0) {
    if (entry.kind == SliceKind::data)
      return {Errc::invalid, "a slice must be reserved before it is committed"};
    return {};
  }
  if (slice.entry().slice() < slice.batch() || slice.entry().slice() - slice.batch() >= 64) {
    return {Errc::invalid, "a slice is not of the reservation that it names"};
  }
  return {};
}

Result<Written> written_of(Context& context, const pb::NewSlice& slice, bool append) {
  Written written;
  written.entry = SL_TRY(entry_of(slice.entry()));
  SL_TRY(check_slice(slice, written.entry));
  if (!append && written.entry.position > kChunkSize - written.entry.length) {
    return {Errc::invalid, "a slice entry reaches beyond its chunk"};
  }
  if (written.entry.position >= kChunkSize)
    return {Errc::invalid, "a slice entry lies outside its chunk"};
  written.position = slice.chunk() * kChunkSize + written.entry.position;
  written.batch = slice.batch();
  if (written.entry.kind == SliceKind::inline_bytes) {
    written.content = &slice.entry().inline_data();
    if (written.batch == 0) written.entry.slice = SL_TRY(context.new_slices(1));
  }
  return written;
}

Result<Plan> plan_of(Context& context, const pb::CommitRequest& request) {
  if (request.slices_size() > kMaxSlices)
    return {Errc::invalid, "a commit has at most 4096 slices"};
  if (request.append() && request.on().session() != 0 && request.on().request() == 0) {
    return {Errc::invalid, "an append needs a request number, so that it happens once"};
  }
  Plan plan;
  for (const pb::NewSlice& slice : request.slices()) {
    Written written = SL_TRY(written_of(context, slice, request.append()));
    if (written.batch != 0) {
      plan.reservations[written.batch].bits |= std::uint64_t{1}
                                               << (written.entry.slice.value - written.batch);
    }
    plan.begin = std::min(plan.begin, written.position);
    plan.end = std::max(plan.end, written.position + written.entry.length);
    if (!request.append()) plan.chunks.push_back(slice.chunk());
    plan.written.push_back(written);
  }
  if (plan.reservations.size() > kMaxReservations)
    return {Errc::invalid, "a commit names too many reservations"};
  std::sort(plan.chunks.begin(), plan.chunks.end());
  plan.chunks.erase(std::unique(plan.chunks.begin(), plan.chunks.end()), plan.chunks.end());
  return plan;
}

std::vector<std::string> keys_of(const Access& access, InodeId inode, const Plan& plan) {
  std::vector<std::string> keys = {inode_key(access.branch, inode)};
  for (const auto& [batch, reservation] : plan.reservations) {
    keys.push_back(reserved_key(access.branch, access.session, batch));
  }
  for (const std::uint32_t chunk : plan.chunks)
    keys.push_back(slices_key(access.branch, inode, chunk));
  return keys;
}

/// True: every slice is in a file already, so this commit has happened. False: none is, and the
/// bits are being set.
Result<bool> take_reserved(Change& change, Plan& plan, const Rows& rows) {
  std::size_t next = 1;
  std::size_t set = 0;
  for (auto& [batch, reservation] : plan.reservations) {
    const std::optional<kv::Row>& row = rows[next++];
    if (!row) return {Errc::invalid, "the slices of a commit were not reserved by this session"};
    reservation.row = SL_TRY(ReservedRow::decode(row->value));
    reservation.version = row->version;
    if (reservation.row.count < 64 && (reservation.bits >> reservation.row.count) != 0) {
      return {Errc::invalid, "a slice lies beyond its reservation"};
    }
    if ((reservation.row.committed & reservation.bits) == reservation.bits)
      ++set;
    else if (reservation.row.committed & reservation.bits) {
      return {Errc::invalid, "some slices of a commit are in a file already"};
    }
  }
  if (set != 0 && set == plan.reservations.size()) return true;
  if (set != 0) return {Errc::invalid, "some slices of a commit are in a file already"};
  for (auto& [batch, reservation] : plan.reservations) {
    const std::string key = reserved_key(change.branch(), change.access.session, batch);
    reservation.row.header = change.header();
    reservation.row.committed |= reservation.bits;
    change.t.expect(key, reservation.version);
    change.t.put(key, reservation.row.encode());
  }
  return false;
}

/// Loads the chunks that an append touches, which its place decides.
Status load_appended(Change& change, Contents& contents, InodeId inode, const Plan& plan,
                     std::uint64_t base) {
  std::vector<std::uint32_t> chunks;
  for (const Written& written : plan.written) {
    const std::uint64_t first = base + written.position;
    chunks.push_back(static_cast<std::uint32_t>(first / kChunkSize));
    chunks.push_back(static_cast<std::uint32_t>((first + written.entry.length - 1) / kChunkSize));
  }
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  std::vector<std::string> keys;
  for (const std::uint32_t chunk : chunks)
    keys.push_back(slices_key(change.branch(), inode, chunk));
  const Rows rows = SL_TRY(change.t.get_many(keys));
  for (std::size_t i = 0; i < chunks.size(); ++i) SL_TRY(contents.load(chunks[i], rows[i]));
  return {};
}

/// Puts an entry where it belongs; an appended one may lie on two chunks or more.
void place(Change& change, Contents& contents, const Written& written, std::uint64_t base) {
  Entry entry = written.entry;
  entry.owner = change.branch();
  entry.birth = static_cast<std::uint32_t>(change.head.epoch);
  std::uint64_t at = base + written.position;
  std::uint32_t left = written.entry.length;
  bool first = true;
  while (left > 0) {
    const auto index = static_cast<std::uint32_t>(at / kChunkSize);
    entry.position = static_cast<std::uint32_t>(at % kChunkSize);
    entry.length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(left, kChunkSize - entry.position));
    if (entry.kind == SliceKind::zero) {
      contents.chunk(index).zero(entry.position, entry.end());
    } else {
      if (first && entry.kind == SliceKind::data) contents.reserved(index, entry);
      contents.chunk(index).add(entry, written.content ? *written.content : std::string());
    }
    at += entry.length;
    entry.offset += entry.length;
    left -= entry.length;
    first = false;
  }
}

Status write_contents(Change& change, const pb::CommitRequest& request, const Plan& plan,
                      const Rows& rows, Node& node, pb::CommitReply* reply) {
  const std::uint64_t base = request.append() ? node.row.length : 0;
  const std::uint64_t end =
      std::max({node.row.length, request.append() ? 0 : request.length(), base + plan.end});
  if (end > kMaxLength) return {Errc::file_too_large, "a file has at most 2^58 bytes"};
  Contents contents(change, node.inode, node.row.version);
  if (request.append()) {
    SL_TRY(load_appended(change, contents, node.inode, plan, base));
    reply->set_appended_at(base);
  }
  const std::size_t first = 1 + plan.reservations.size();
  for (std::size_t i = 0; i < plan.chunks.size(); ++i)
    SL_TRY(contents.load(plan.chunks[i], rows[first + i]));
  for (const Written& written : plan.written) place(change, contents, written, base);
  const std::int64_t bytes = SL_TRY(contents.store());
  add_contents(node, bytes);
  if (node.row.nlink > 0) reply->set_escrow_taken(SL_TRY(charge_from_escrow(change, bytes)));
  if (!plan.written.empty() || end != node.row.length) node.row.version += 1;
  node.row.length = end;
  return {};
}

Status run_commit(Change& change, const pb::CommitRequest& request, Plan& plan, const Rows& rows,
                  pb::CommitReply* reply) {
  if (!rows[0]) return {Errc::not_found, "no such file"};
  Node node = SL_TRY(node_of(InodeId{request.inode()}, rows[0]));
  if (node.row.is_directory()) return {Errc::is_directory, "a directory"};
  if (!node.row.is_regular()) return {Errc::invalid, "only files have contents"};
  reply->set_previous_version(node.row.version);
  if (SL_TRY(take_reserved(change, plan, rows))) {
    put_attributes(node.inode, node.row, {}, reply->mutable_attributes());
    return {};
  }
  SL_TRY(may_write(node.row, request.append() ? node.row.length : plan.begin));
  SL_TRY(write_contents(change, request, plan, rows, node, reply));
  node.row.mtime = request.has_mtime() ? SL_TRY(time_of(request.mtime())) : change.now;
  touch_ctime(node.row, change.now);
  if (request.kill_privileges()) kill_privileges(node.row);
  if (request.has_set()) {
    SL_TRY(may_be_given(request.set(), node.row));
    SL_TRY(give(change, request.set(), node));
  }
  put_node(change, node);
  put_attributes(node.inode, node.row, {}, reply->mutable_attributes());
  return {};
}

}  // namespace

Status op_commit(Context& context, const Call&, const pb::CommitRequest& request,
                 pb::CommitReply* reply) {
  const Access access = access_of(request.on());
  const InodeId inode{request.inode()};
  Plan plan = SL_TRY(plan_of(context, request));
  const auto durability = request.durable() ? kv::Durability::durable : kv::Durability::ordered;
  const auto run = [&](Change& change, Rows& rows) {
    return run_commit(change, request, plan, rows, reply);
  };
  // Commits of one session may have spent the same escrow: who comes later looks again.
  constexpr int kTries = 8;
  Status done;
  for (int i = 0; i < kTries; ++i) {
    done = change_branch(context, access, number_of(Method::commit), keys_of(access, inode, plan),
                         reply, run, durability);
    if (done.code() != Errc::quota || reply->escrow_taken() == 0) return done;
  }
  return done;
}

}  // namespace starlane::meta
