#include "keeper/keeper.h"

#include <algorithm>

#include "common/log.h"
#include "common/rng.h"

namespace starlane::keeper {
namespace {

constexpr std::uint32_t kMergesOfSession = 1'000;

void keep_first(Status* first, Status status) {
  if (first->ok()) *first = std::move(status);
}

}  // namespace

Keeper::Keeper(MetaService& meta, BlockService& blocks, const Clock& clock, Options options)
    : meta_(meta),
      clock_(clock),
      options_(std::move(options)),
      blocks_(blocks, options_.remove_threads),
      merger_(meta, blocks_),
      scrubber_(meta, blocks, clock, options_.scrub),
      nonce_("keeper-" + std::to_string(random_seed())) {}

Keeper::~Keeper() { stop(); }

Call Keeper::call() const {
  Call call;
  call.session = session_;
  call.map_epoch = 0;
  call.deadline = Deadline::after(options_.call_timeout);
  return call;
}

// The session is ended when merging left reserved slices behind, which only its end gives back, and
// now and then, for the records of its reservations.
Status Keeper::ensure_session() {
  if (session_ && (merger_.abandoned() > 0 || merges_ >= kMergesOfSession)) end_session();
  if (session_) {
    if (clock_.boot() - renewed_ < renew_every_) return {};
    const Status renewed = renew_session();
    if (renewed.code() != Errc::fenced) return renewed;
    session_ = SessionId();
    nonce_ = "keeper-" + std::to_string(random_seed());
  }
  pb::OpenSessionRequest open;
  open.set_host(options_.host);
  open.set_purpose("keeper");
  open.set_nonce(nonce_);
  pb::OpenSessionReply opened;
  const Nanoseconds sent = clock_.boot();
  SL_TRY(meta_.open_session(call(), open, &opened));
  session_ = SessionId(opened.session());
  renewed_ = sent;
  renew_every_ = Milliseconds(static_cast<std::int64_t>(opened.heartbeat_ms()));
  return {};
}

Status Keeper::renew_session() {
  pb::HeartbeatRequest beat;
  beat.set_session(session_.value);
  pb::HeartbeatReply reply;
  const Nanoseconds sent = clock_.boot();
  SL_TRY(meta_.heartbeat(call(), beat, &reply));
  renewed_ = sent;
  return {};
}

void Keeper::end_session() {
  if (!session_) return;
  pb::SessionRequest close;
  close.set_session(session_.value);
  pb::Empty nothing;
  const Status closed = meta_.close_session(call(), close, &nothing);
  if (!closed.ok()) SL_LOG(debug, "event=keeper_session_left reason={}", closed.to_string());
  session_ = SessionId();  // Left behind, it expires by itself.
  nonce_ = "keeper-" + std::to_string(random_seed());
  merger_.forget_abandoned();
  merges_ = 0;
}

Status Keeper::refresh_map() {
  pb::ClusterMap map;
  SL_TRY(meta_.cluster_map(call(), pb::Empty(), &map));
  blocks_.use(SL_TRY(map_of(map)));
  return {};
}

void Keeper::take_turn() {
  MutexLock lock(m_);
  while (taken_) wake_.wait(m_);
  taken_ = true;
}

void Keeper::end_turn() {
  MutexLock lock(m_);
  taken_ = false;
  wake_.notify_all();
}

Result<bool> Keeper::run_once() {
  take_turn();
  Result<bool> more = run_round();
  end_turn();
  return more;
}

Result<bool> Keeper::run_round() {
  bool more = false;
  Status first = ensure_session();
  if (first.ok()) first = refresh_map();
  if (first.ok()) {
    keep_first(&first, keep_house(&more));
    keep_first(&first, remove_dead(&more));
    keep_first(&first, merge_long(&more));
    keep_first(&first, scrub());
  }
  if (first.code() == Errc::fenced) session_ = SessionId();
  note(first, more);
  if (!first.ok()) return first;
  return more;
}

Status Keeper::keep_house(bool* more) {
  for (std::uint32_t step = 0; step < options_.housekeeping_steps; ++step) {
    pb::KeeperRequest request;
    request.set_session(session_.value);
    pb::HousekeepingReply reply;
    SL_TRY(meta_.housekeeping(call(), request, &reply));
    {
      MutexLock lock(m_);
      figures_.expired_sessions += reply.expired_sessions();
      figures_.freed_inodes += reply.freed_inodes();
      figures_.orphan_slices += reply.orphan_slices();
      figures_.forgotten_outcomes += reply.forgotten_outcomes();
      figures_.removed_rows += reply.removed_rows();
    }
    if (!reply.more()) return {};
  }
  *more = true;
  return {};
}

// Goes around all dead references, so that those whose target is away do not hold up the others.
Status Keeper::remove_dead(bool* more) {
  Status first;
  for (std::uint32_t seen = 0; seen < options_.dead_slices_per_run;) {
    pb::KeeperRequest request;
    request.set_session(session_.value);
    request.set_cursor(dead_cursor_);
    request.set_limit(std::min<std::uint32_t>(512, options_.dead_slices_per_run - seen));
    pb::DeadSlicesReply dead;
    SL_TRY(meta_.dead_slices(call(), request, &dead));
    dead_cursor_ = dead.cursor();
    seen += std::max(1, dead.slices_size());
    keep_first(&first, remove_some(dead));
    if (dead_cursor_.empty()) return first;
  }
  *more = first.ok();
  return first;
}

Status Keeper::remove_some(const pb::DeadSlicesReply& dead) {
  std::vector<SliceName> names;
  std::vector<const pb::DeadSlice*> rows;
  for (const pb::DeadSlice& slice : dead.slices()) {
    if (!slice.remove()) continue;
    names.push_back({BranchId(slice.owner()), SliceId(slice.slice())});
    rows.push_back(&slice);
  }
  if (names.empty()) return {};
  // What replaced them may be committed, durably by now, and only accepted by its targets: after a
  // power cut there would be neither.
  SL_TRY(blocks_.sync_all(call()));
  const std::vector<Status> removed = blocks_.remove_all(call(), names);
  Status first;
  pb::SettleRequest settle;
  settle.set_session(session_.value);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (removed[i].ok()) {
      settle.add_rows(rows[i]->row());
    } else {
      keep_first(&first, removed[i]);
    }
  }
  if (settle.rows_size() == 0) return first;
  pb::Empty nothing;
  keep_first(&first, meta_.settle_dead(call(), settle, &nothing));
  if (first.ok()) {
    MutexLock lock(m_);
    figures_.removed_slices += static_cast<std::uint64_t>(settle.rows_size());
  }
  return first;
}

Status Keeper::merge_long(bool* more) {
  pb::KeeperRequest request;
  request.set_session(session_.value);
  request.set_cursor(long_cursor_);
  request.set_limit(options_.merges_per_run);
  pb::LongChunksReply chunks;
  SL_TRY(meta_.long_chunks(call(), request, &chunks));
  Status first;
  std::uint64_t written = 0;
  for (const pb::LongChunk& chunk : chunks.chunks()) {
    if (written >=
        options_.merge_bytes_per_run) {  // Those left out are long at the next round as well.
      *more = true;
      break;
    }
    const Result<Merger::Outcome> merged = merger_.merge(call(), chunk);
    if (!merged.ok()) {
      keep_first(&first, merged.status().with("merging chunk " + std::to_string(chunk.chunk()) +
                                              " of inode " + std::to_string(chunk.inode())));
      continue;
    }
    written += merged->bytes_written;
    ++merges_;
    MutexLock lock(m_);
    figures_.merged_chunks += merged->exchanged ? 1 : 0;
    figures_.merged_bytes += merged->bytes_written;
  }
  long_cursor_ = chunks.cursor();
  if (!long_cursor_.empty()) *more = true;
  return first;
}

Status Keeper::scrub() {
  std::vector<TargetId> targets;
  for (const Target& target : blocks_.map().targets) targets.push_back(target.id);
  const Status done = scrubber_.step(call(), targets);
  MutexLock lock(m_);
  figures_.scrub = scrubber_.figures();
  return done;
}

void Keeper::note(const Status& status, bool more) {
  MutexLock lock(m_);
  ++figures_.runs;
  figures_.behind = more;
  if (status.ok()) {
    figures_.last_failure.clear();
    return;
  }
  ++figures_.failed_runs;
  figures_.last_failure = status.to_string();
}

void Keeper::start() {
  if (thread_.joinable()) return;
  {
    MutexLock lock(m_);
    stopping_ = false;
  }
  thread_ = std::thread([this] { run_thread(); });
}

void Keeper::run_thread() {
  name_this_thread("keeper");
  std::string told;  // A failure that stays is logged once.
  for (;;) {
    const Result<bool> more = run_once();
    const std::string failure = more.ok() ? "" : more.status().to_string();
    if (!failure.empty() && failure != told)
      SL_LOG(warn, "event=keeper_failed reason=\"{}\"", failure);
    told = failure;
    MutexLock lock(m_);
    if (!stopping_) wake_.wait_for(m_, more.ok() && *more ? options_.busy_pace : options_.pace);
    if (stopping_) return;
  }
}

void Keeper::stop() {
  {
    MutexLock lock(m_);
    stopping_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  take_turn();
  end_session();
  end_turn();
}

Figures Keeper::figures() const {
  MutexLock lock(m_);
  return figures_;
}

}  // namespace starlane::keeper
