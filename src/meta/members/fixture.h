// For tests: a metadata server over an engine in memory and a clock that stands still, and clients
// of it, each a session with one branch attached. One thread.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/manual_clock.h"
#include "kv/mem/mem_engine.h"
#include "meta/keys.h"
#include "meta/server.h"

namespace starlane::meta {

struct Site {
  explicit Site(Options options = {})
      : server(engine, clock, options), lease(options.lease), heartbeat(options.heartbeat) {}

  template <typename Request, typename Reply>
  Result<Reply> ask(Status (MetaService::*method)(const Call&, const Request&, Reply*),
                    const Request& request, SessionId session = {}) {
    Call call;
    call.session = session;
    Reply reply;
    SL_TRY((server.*method)(call, request, &reply));
    return reply;
  }
  Result<pb::Volume> create_volume(const std::string& name, std::uint64_t quota_bytes = 0) {
    pb::VolumeRequest request;
    request.set_name(name);
    request.set_quota_bytes(quota_bytes);
    return ask(&MetaService::volume_create, request);
  }
  Status delete_volume(const std::string& name, bool force = false) {
    pb::VolumeRequest request;
    request.set_name(name);
    request.set_force(force);
    return ask(&MetaService::volume_delete, request).status();
  }
  SessionId open_session(const std::string& nonce = "", const std::string& purpose = "test") {
    pb::OpenSessionRequest request;
    request.set_host("here");
    request.set_purpose(purpose);
    request.set_nonce(nonce);
    const auto reply = ask(&MetaService::open_session, request);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    return SessionId(reply.ok() ? reply->session() : 0);
  }
  Status close_session(SessionId session) {
    pb::SessionRequest request;
    request.set_session(session.value);
    return ask(&MetaService::close_session, request).status();
  }
  Result<pb::HousekeepingReply> keep_house() {
    return ask(&MetaService::housekeeping, pb::KeeperRequest());
  }
  /// Until there is nothing to do; the sum of what was done.
  pb::HousekeepingReply keep_all_house() {
    pb::HousekeepingReply sum;
    for (int i = 0; i < 10'000; ++i) {
      const auto step = keep_house();
      EXPECT_TRUE(step.ok()) << step.status().to_string();
      if (!step.ok()) break;
      sum.set_expired_sessions(sum.expired_sessions() + step->expired_sessions());
      sum.set_freed_inodes(sum.freed_inodes() + step->freed_inodes());
      sum.set_orphan_slices(sum.orphan_slices() + step->orphan_slices());
      sum.set_forgotten_outcomes(sum.forgotten_outcomes() + step->forgotten_outcomes());
      sum.set_removed_rows(sum.removed_rows() + step->removed_rows());
      if (!step->more()) break;
    }
    return sum;
  }
  /// What the keeper would remove; settled, as if it had.
  std::vector<std::uint64_t> remove_dead() {
    std::vector<std::uint64_t> slices;
    pb::KeeperRequest request;
    do {
      const auto dead = ask(&MetaService::dead_slices, request);
      EXPECT_TRUE(dead.ok()) << dead.status().to_string();
      if (!dead.ok()) break;
      pb::SettleRequest settle;
      for (const pb::DeadSlice& slice : dead->slices()) {
        EXPECT_TRUE(slice.remove());
        slices.push_back(slice.slice());
        settle.add_rows(slice.row());
      }
      EXPECT_TRUE(ask(&MetaService::settle_dead, settle).ok());
      request.set_cursor(dead->cursor());
    } while (!request.cursor().empty());
    return slices;
  }
  std::vector<std::string> check() {
    std::vector<std::string> problems;
    pb::FsckRequest request;
    request.set_limit(3);  // Small, so that every sum spans pages.
    do {
      const auto page = ask(&MetaService::fsck_references, request);
      EXPECT_TRUE(page.ok()) << page.status().to_string();
      if (!page.ok()) break;
      problems.insert(problems.end(), page->problems().begin(), page->problems().end());
      references.insert(references.end(), page->references().begin(), page->references().end());
      request.set_cursor(page->cursor());
    } while (!request.cursor().empty());
    return problems;
  }
  std::vector<kv::Row> rows(const KeyRange& range) {
    const auto t = engine.begin();
    auto rows = t->scan({range.first, range.last, 1'000'000});
    EXPECT_TRUE(rows.ok());
    return rows.ok() ? *rows : std::vector<kv::Row>();
  }
  std::vector<kv::Row> rows(BranchId branch, Table table) {
    return rows(table_range(Space::branch, branch, table));
  }
  std::vector<kv::Row> system_rows(Table table) {
    return rows(table_range(Space::system, BranchId{}, table));
  }
  std::int64_t total(const std::string& key) { return engine.begin()->total(key).value(); }
  void edit(const std::function<Status(kv::Transaction&)>& change) {
    EXPECT_TRUE(kv::run(engine, kv::Durability::ordered, change).ok());
  }

  kv::mem::MemEngine engine;
  ManualClock clock;
  Server server;
  const Milliseconds lease;
  const Milliseconds heartbeat;
  std::vector<pb::FsckReference> references;  // told by check()
};

/// A session that has one volume or data set attached.
struct Client {
  explicit Client(Site& site_in, const std::string& nonce = "")
      : site(site_in), session(site.open_session(nonce)) {}

  Result<pb::AttachReply> attach(const std::string& volume, bool read_only = false) {
    pb::AttachRequest request;
    request.set_session(session.value);
    request.set_volume(volume);
    request.set_read_only(read_only);
    return attach(request);
  }
  Result<pb::AttachReply> attach_image(const std::string& name, const std::string& version) {
    pb::AttachRequest request;
    request.set_session(session.value);
    request.set_image_name(name);
    request.set_image_version(version);
    return attach(request);
  }
  Result<pb::AttachReply> attach(const pb::AttachRequest& request) {
    const pb::AttachReply reply = SL_TRY(site.ask(&MetaService::attach, request, session));
    branch = BranchId(reply.branch());
    epoch = reply.attachment_epoch();
    return reply;
  }
  Status detach() {
    pb::BranchRequest request;
    request.set_session(session.value);
    request.set_branch(branch.value);
    return site.ask(&MetaService::detach, request).status();
  }
  Status release_lease() {
    pb::BranchRequest request;
    request.set_session(session.value);
    request.set_branch(branch.value);
    return site.ask(&MetaService::release_lease, request).status();
  }
  Result<pb::HeartbeatReply> beat(const std::vector<std::uint64_t>& held = {},
                                  std::uint64_t oldest = 0) {
    pb::HeartbeatRequest request;
    request.set_session(session.value);
    request.set_oldest_request(oldest);
    request.set_unlinked_cursor(cursor);
    for (const std::uint64_t inode : held) {
      request.add_held_branch(branch.value);
      request.add_held_inode(inode);
    }
    const pb::HeartbeatReply reply = SL_TRY(site.ask(&MetaService::heartbeat, request));
    cursor = reply.unlinked_cursor();
    return reply;
  }
  /// The one attachment as a heartbeat tells it.
  pb::AttachmentState lease_state() {
    const auto reply = beat();
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    if (!reply.ok() || reply->attachments_size() == 0) return {};
    return reply->attachments(0);
  }

  void fill(pb::On* on, std::uint64_t request = 0) const {
    on->set_session(session.value);
    on->set_branch(branch.value);
    on->set_attachment_epoch(epoch);
    on->set_request(request);
  }
  Result<std::uint64_t> create(std::uint64_t parent, const std::string& name,
                               std::uint64_t number = 0) {
    pb::CreateRequest request;
    fill(request.mutable_on(), number);
    request.set_parent(parent);
    request.set_name(name);
    request.set_mode(0100644);
    const pb::NewEntry entry = SL_TRY(site.ask(&MetaService::create, request));
    return entry.attributes().inode();
  }
  Result<std::uint64_t> mkdir(std::uint64_t parent, const std::string& name) {
    pb::CreateRequest request;
    fill(request.mutable_on());
    request.set_parent(parent);
    request.set_name(name);
    request.set_mode(0755);
    const pb::NewEntry entry = SL_TRY(site.ask(&MetaService::make_directory, request));
    return entry.attributes().inode();
  }
  Status link(std::uint64_t inode, std::uint64_t parent, const std::string& name) {
    pb::LinkRequest request;
    fill(request.mutable_on());
    request.set_inode(inode);
    request.set_parent(parent);
    request.set_name(name);
    return site.ask(&MetaService::link, request).status();
  }
  Status unlink(std::uint64_t parent, const std::string& name, bool held = false) {
    pb::UnlinkRequest request;
    fill(request.mutable_on());
    request.set_parent(parent);
    request.set_name(name);
    request.set_held(held);
    return site.ask(&MetaService::unlink, request).status();
  }
  Result<pb::ReserveSlicesReply> reserve(std::uint32_t count) {
    pb::ReserveSlicesRequest request;
    request.set_session(session.value);
    request.set_branch(branch.value);
    request.set_count(count);
    return site.ask(&MetaService::reserve_slices, request);
  }
  /// Commits one slice of `length` bytes at `offset`; the whole of it in one chunk.
  Result<pb::CommitReply> commit(std::uint64_t inode, std::uint64_t offset, std::uint32_t length,
                                 std::uint64_t slice, std::uint64_t batch) {
    pb::CommitRequest request;
    fill(request.mutable_on());
    request.set_inode(inode);
    request.set_length(offset + length);
    pb::NewSlice* added = request.add_slices();
    added->set_chunk(static_cast<std::uint32_t>(offset / kChunkSize));
    added->set_batch(batch);
    pb::SliceEntry* entry = added->mutable_entry();
    entry->set_position(static_cast<std::uint32_t>(offset % kChunkSize));
    entry->set_length(length);
    entry->set_slice_length(length);
    entry->set_slice(slice);
    return site.ask(&MetaService::commit, request);
  }
  Result<std::uint64_t> write(std::uint64_t inode, std::uint64_t offset, std::uint32_t length) {
    const pb::ReserveSlicesReply reserved = SL_TRY(reserve(1));
    SL_TRY(commit(inode, offset, length, reserved.first(), reserved.batch()));
    return reserved.first();
  }
  Status copy(BranchId from_branch, std::uint64_t from, std::uint64_t inode, std::uint64_t length) {
    pb::CopyRangeRequest request;
    fill(request.mutable_on());
    request.set_source_branch(from_branch.value);
    request.set_source_inode(from);
    request.set_inode(inode);
    request.set_length(length);
    return site.ask(&MetaService::copy_range, request).status();
  }
  Result<pb::Attributes> attributes(std::uint64_t inode) {
    pb::NodeRequest request;
    fill(request.mutable_on());
    request.set_inode(inode);
    return site.ask(&MetaService::get_attributes, request);
  }

  Site& site;
  SessionId session;
  BranchId branch;
  std::uint64_t epoch = 0;
  std::uint64_t cursor = 0;
};

}  // namespace starlane::meta
