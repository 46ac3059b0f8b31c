#include "meta/context.h"

#include <google/protobuf/message_lite.h>

#include <algorithm>

namespace starlane::meta {
namespace {

constexpr std::size_t kBranches = 4096;  // whose ranges one allocator keeps
constexpr int kAttempts = 64;
constexpr std::uint64_t kMaxNs = (std::uint64_t{1} << 63) - 1;

struct PoolRow {
  RowHeader header;
  std::uint64_t next = 1;
  template <typename Self, typename Codec>
  static void fields(Self& s, Codec& c) {
    c(s.next);
  }
};

}  // namespace

IdAllocator::IdAllocator(kv::Engine& engine, Pool pool, std::uint64_t stride)
    : engine_(engine), pool_(pool), stride_(stride) {}

Result<std::uint64_t> IdAllocator::take(BranchId branch, std::uint32_t count) {
  SL_CHECK(count > 0 && count <= stride_);
  if (const auto cached = take_cached(branch, count)) return *cached;
  Range range;
  const std::string key = id_pool_key(pool_, branch);
  // Durable before one of them is used: after power loss a number must not name two things.
  const Status drawn = kv::run(engine_, kv::Durability::durable, [&](kv::Transaction& t) -> Status {
    const std::optional<kv::Row> row = SL_TRY(t.get(key));
    PoolRow pool;
    if (pool_ == Pool::inode) pool.next = kRootInode.value + 1;
    if (row) pool = SL_TRY(decode_row<PoolRow>(row->value, "id pool"));
    range = {pool.next, pool.next + stride_};
    if (pool_ == Pool::inode && range.end > kInodeLimit) {
      return {Errc::no_space, "this volume has given out all its inode numbers"};
    }
    pool.next = range.end;
    t.expect(key, row ? row->version : kv::kAbsent);
    t.put(key, encode_row(pool));
    return {};
  });
  if (!drawn.ok()) return drawn;
  const std::uint64_t first = range.next;
  range.next += count;
  keep(branch, range);
  return first;
}

std::optional<std::uint64_t> IdAllocator::take_cached(BranchId branch, std::uint32_t count) {
  MutexLock lock(m_);
  const auto found = ranges_.find(branch);
  if (found == ranges_.end()) return std::nullopt;
  std::deque<Range>& ranges = found->second;
  while (!ranges.empty() && ranges.front().end - ranges.front().next < count) ranges.pop_front();
  if (ranges.empty()) return std::nullopt;
  const std::uint64_t first = ranges.front().next;
  ranges.front().next += count;
  return first;
}

void IdAllocator::keep(BranchId branch, Range range) {
  MutexLock lock(m_);
  if (ranges_.size() >= kBranches && !ranges_.contains(branch)) ranges_.erase(ranges_.begin());
  ranges_[branch].push_back(range);
}

Context::Context(kv::Engine& engine_in, const Clock& clock_in, Options options_in)
    : engine(engine_in),
      clock(clock_in),
      options(std::move(options_in)),
      inodes(engine, Pool::inode, 1u << 16),
      slices(engine, Pool::slice, 1u << 16),
      branches(engine, Pool::branch, 1),
      views(engine, Pool::view, 1),
      sessions(engine, Pool::session, 16),
      attachments(engine, Pool::attachment, 16) {}

Result<InodeId> Context::new_inode(BranchId branch) { return InodeId{SL_TRY(inodes.take(branch))}; }

Result<SliceId> Context::new_slices(std::uint32_t count) {
  return SliceId{SL_TRY(slices.take(BranchId{}, count))};
}

Status Context::read(const std::function<Status(kv::Transaction&)>& body) const {
  Status last;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto t = engine.begin();
    last = body(*t);
    if (last.code() != Errc::conflict) return last;
  }
  return {Errc::busy, "metadata changed too fast to be read: " + last.text()};
}

namespace {

struct Fixed {  // places of the rows that begin every change
  std::size_t head = 0;
  std::size_t session = 0;
  std::size_t attachment = 0;
  std::size_t outcome = 0;
};

/// Outcomes go with their session.
bool is_recorded(const Access& access) { return access.session && access.request != 0; }

std::vector<std::string> keys_of_change(const Access& access, const std::vector<std::string>& keys,
                                        Fixed* at) {
  std::vector<std::string> all;
  all.reserve(keys.size() + 4);
  all = keys;
  const auto add = [&all](std::string key) {
    all.push_back(std::move(key));
    return all.size() - 1;
  };
  at->head = add(head_key(access.branch));
  if (access.session) at->session = add(session_key(access.session));
  if (access.session && access.attachment_epoch != 0) {
    at->attachment = add(attachment_key(access.branch, access.session));
  }
  if (is_recorded(access))
    at->outcome = add(outcome_key(access.branch, access.session, access.request));
  return all;
}

Status check_fences(const Access& access, const Rows& rows, const Fixed& at) {
  if (access.session && !rows[at.session]) {
    return {Errc::fenced, "this session was ended by the server: open a new one"};
  }
  if (!access.session || access.attachment_epoch == 0) return {};
  const std::optional<kv::Row>& row = rows[at.attachment];
  if (!row) return {Errc::fenced, "the volume was detached from this session"};
  const RowHeader header = SL_TRY(decode_header(row->value, "attachment"));
  if (header.epoch != access.attachment_epoch)
    return {Errc::fenced, "the volume was attached anew since"};
  if ((header.flags & kAttachedReadOnly) && !access.advisory)
    return {Errc::read_only, "attached for reading only"};
  return {};
}

Status check_writable(const HeadRow& head, const Access& access) {
  if (head.state == BranchState::deleting) return {Errc::not_found, "the volume is being deleted"};
  if (access.advisory) return {};
  if (head.state == BranchState::frozen)
    return {Errc::read_only, "a published data set never changes"};
  if (head.writer && access.session && head.writer != access.session) {
    return {Errc::read_only, "another session is publishing this data set"};
  }
  return {};
}

void guard_all(kv::Transaction& t, const Access& access) {
  t.guard(head_key(access.branch));
  if (!access.session) return;
  t.guard(session_key(access.session));
  if (access.attachment_epoch != 0) t.guard(attachment_key(access.branch, access.session));
}

/// True: this very call was answered before, and `reply` holds the answer.
Result<bool> answered(const Access& access, const Rows& rows, const Fixed& at, std::uint16_t method,
                      google::protobuf::MessageLite* reply) {
  if (!is_recorded(access) || !rows[at.outcome]) return false;
  const OutcomeRow outcome = SL_TRY(OutcomeRow::decode(rows[at.outcome]->value));
  if (outcome.method != method) {
    return {Errc::protocol, "two calls of one session carry the same request number"};
  }
  if (!reply->ParseFromString(outcome.reply)) return damaged("outcome");
  return true;
}

}  // namespace

Status change_branch(Context& context, const Access& access, std::uint16_t method,
                     const std::vector<std::string>& keys, google::protobuf::MessageLite* reply,
                     const std::function<Status(Change&, Rows&)>& body, kv::Durability durability) {
  Fixed at;
  const std::vector<std::string> all = keys_of_change(access, keys, &at);
  return kv::run(context.engine, durability, [&](kv::Transaction& t) -> Status {
    Rows rows = SL_TRY(t.get_many(all));
    SL_TRY(check_fences(access, rows, at));
    if (SL_TRY(answered(access, rows, at, method, reply))) return {};
    const HeadRow head = SL_TRY(need<HeadRow>(rows[at.head], "volume"));
    SL_TRY(check_writable(head, access));
    guard_all(t, access);
    const WallTime now = context.clock.wall();
    Change change{context, t, access, head, now, to_ns(now)};
    reply->Clear();
    SL_TRY(body(change, rows));
    if (!is_recorded(access)) return {};
    const std::string key = outcome_key(access.branch, access.session, access.request);
    t.expect(key, kv::kAbsent);
    t.put(key, OutcomeRow{change.header(), method, reply->SerializeAsString()}.encode());
    return {};
  });
}

void Change::charge(std::int64_t bytes, std::int64_t inodes) {
  const auto add = [this](What what, std::int64_t amount, std::uint64_t quota) {
    if (amount == 0) return;
    const std::string key = accumulator_key(branch(), InodeId{}, what);
    if (quota != 0 && amount > 0) {
      t.add_limited(key, amount, static_cast<std::int64_t>(std::min(quota, kMaxNs)));
    } else {
      t.add(key, amount);
    }
  };
  add(What::bytes, bytes, head.quota_bytes);
  add(What::inodes, inodes, head.quota_inodes);
}

Result<HeadRow> read_head(kv::Transaction& t, BranchId branch) {
  return need<HeadRow>(SL_TRY(t.get(head_key(branch))), "volume");
}

std::uint64_t to_ns(const WallTime& time) {
  if (time.seconds < 0) return 0;
  const auto seconds = static_cast<std::uint64_t>(time.seconds);
  if (seconds >= kMaxNs / 1'000'000'000) return kMaxNs;
  return seconds * 1'000'000'000 + time.nanoseconds;
}

WallTime from_ns(std::uint64_t ns) {
  return {static_cast<std::int64_t>(ns / 1'000'000'000),
          static_cast<std::uint32_t>(ns % 1'000'000'000)};
}

}  // namespace starlane::meta
