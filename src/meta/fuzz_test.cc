// What the engine's rows and keys hold, what a client asks, and access lists out of the kernel,
// fuzzed (common/fuzz.h). A row that is taken is written as it was read; whatever is asked of a
// server, its rows agree with each other afterwards.
#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>

#include "common/fuzz.h"
#include "meta/acl.h"
#include "meta/chunk.h"
#include "meta/library/library_rows.h"
#include "meta/locks/lock_list.h"
#include "meta/members/fixture.h"
#include "meta/members/flush_marks.h"
#include "meta/members/member_rows.h"
#include "meta/upkeep/fsck_branch.h"

namespace starlane::meta {
namespace {

template <typename Row>
Result<Row> decoded(ByteSpan bytes) {
  return Row::decode(text_of(bytes));
}

/// Nothing is lost on the way: the very bytes come back.
template <typename Row>
bool comes_back(ByteSpan bytes) {
  const auto row = decoded<Row>(bytes);
  if (!taken(row)) return false;
  EXPECT_EQ(row->encode(), text_of(bytes));
  return true;
}

/// As above, but for what is filled in where it was written before it was thought of, or not kept.
template <typename Row>
bool settles(ByteSpan bytes) {
  const auto row = decoded<Row>(bytes);
  if (!taken(row)) return false;
  const auto again = Row::decode(row->encode());
  EXPECT_TRUE(again.ok() && again->encode() == row->encode());
  return true;
}

/// A list that was read can be changed in every way, and read again.
bool chunk(ByteSpan bytes, Rng& rng) {
  const auto row = decoded<SlicesRow>(bytes);
  if (!taken(row)) return false;
  Chunk list(*row);
  const auto place = [&] { return static_cast<std::uint32_t>(rng.below(kChunkSize)); };
  std::uint64_t end = 0;
  for (const Piece& piece : visible_pieces(list.entries())) {
    EXPECT_LE(end, piece.position);
    end = piece.end();
  }
  EXPECT_LE(end, kChunkSize);
  (void)is_wasteful(slice_uses(list.entries()));
  list.zero(place(), place());
  if (rng.one_in(2)) list.cut(place());
  list.tidy(SliceId(rng.below(2) * 1'000'000));
  EXPECT_LE(list.covered(), kChunkSize);
  const auto again = SlicesRow::decode(list.row().encode());
  EXPECT_TRUE(again.ok() && again->entries == list.entries());
  return true;
}

bool locks(ByteSpan bytes, Rng& rng) {
  const auto row = decoded<LockRow>(bytes);
  if (!taken(row)) return false;
  EXPECT_EQ(row->encode(), text_of(bytes));
  if (!well_ordered(row->locks) || row->locks.empty()) return true;
  LockRow changed = *row;
  FileLock wanted = changed.locks[rng.below(changed.locks.size())];
  wanted.start = rng.below(kLockToEnd);
  wanted.end = wanted.start + rng.below(kLockToEnd - wanted.start + 1);
  wanted.type = static_cast<LockType>(rng.below(3));
  (void)conflicts_of(changed.locks, wanted);
  set_range(changed.locks, wanted);
  EXPECT_TRUE(well_ordered(changed.locks));
  EXPECT_TRUE(LockRow::decode(changed.encode()).ok());
  return true;
}

bool access_list(ByteSpan bytes, Rng& rng) {
  auto acl = Acl::decode(text_of(bytes));
  if (!taken(acl)) return false;
  EXPECT_EQ(acl->encode(), text_of(bytes));
  const auto wanted = static_cast<std::uint32_t>(rng.below(01000));
  EXPECT_LE(acl->for_new(wanted).permissions() & ~wanted, 0u);
  acl->change_permissions(wanted);
  EXPECT_EQ(acl->permissions(), wanted);
  EXPECT_TRUE(Acl::decode(acl->encode()).ok());
  return true;
}

bool keys(ByteSpan bytes) {
  const std::string_view key = text_of(bytes);
  bool any = false;
  const auto same = [&](const auto& parsed, auto build) {
    if (!taken(parsed)) return;
    EXPECT_EQ(build(*parsed), key);
    any = true;
  };
  same(parse_dead_key(key), [](const DeadKey& k) { return dead_key(k); });
  same(parse_entry_key(key),
       [](const EntryKey& k) { return entry_key(k.branch, k.parent, k.name); });
  same(parse_slices_key(key),
       [](const SlicesKey& k) { return slices_key(k.branch, k.inode, k.chunk); });
  same(parse_unlinked_key(key),
       [](const UnlinkedKey& k) { return unlinked_key(k.branch, k.ready_ns, k.inode); });
  same(parse_trashed_key(key),
       [](const TrashedKey& k) { return trashed_key(k.branch, k.deleted_ns, k.inode); });
  EXPECT_LE(name_before_deleting(key).size(), key.size());
  return any;
}

bool rows(ByteSpan bytes, Rng& rng) {
  const bool any[] = {comes_back<InodeRow>(bytes),
                      comes_back<EntryRow>(bytes),
                      comes_back<SlicesRow>(bytes),
                      comes_back<XattrRow>(bytes),
                      comes_back<DeadRow>(bytes),
                      comes_back<UnlinkedRow>(bytes),
                      comes_back<TrashedRow>(bytes),
                      comes_back<ReservedRow>(bytes),
                      comes_back<OutcomeRow>(bytes),
                      comes_back<SessionRow>(bytes),
                      comes_back<NumberRow>(bytes),
                      comes_back<ScrubRow>(bytes),
                      comes_back<AttachmentRow>(bytes),
                      comes_back<MapRow>(bytes),
                      comes_back<VolumeRow>(bytes),
                      comes_back<ImageRow>(bytes),
                      comes_back<FlushedRow>(bytes),
                      comes_back<WindowRow>(bytes),
                      settles<FsckState>(bytes),
                      settles<HeadRow>(bytes),
                      chunk(bytes, rng),
                      locks(bytes, rng),
                      access_list(bytes, rng),
                      keys(bytes)};
  return std::ranges::count(any, true) != 0;
}

std::uint32_t some(Rng& rng) { return static_cast<std::uint32_t>(rng.next()); }
WallTime some_time(Rng& rng) {
  return {static_cast<std::int64_t>(rng.next()),
          static_cast<std::uint32_t>(rng.below(1'000'000'000))};
}

InodeRow random_inode(Rng& rng) {
  InodeRow row;
  row.header = {static_cast<std::uint8_t>(rng.next()), rng.next()};
  row.mode = kRegular | static_cast<std::uint32_t>(rng.below(010000));
  row.nlink = some(rng) >> 1;
  row.uid = some(rng);
  row.length = rng.next();
  row.version = rng.next();
  row.mtime = some_time(rng);
  row.btime = some_time(rng);
  row.parent = InodeId(rng.next());
  row.retention = some(rng);
  return row;
}

SlicesRow random_slices(Rng& rng) {
  Chunk list;
  for (std::uint64_t n = rng.below(12); n > 0; --n) {
    Entry entry;
    entry.position = static_cast<std::uint32_t>(rng.below(kInlineLimit));
    entry.kind = static_cast<SliceKind>(rng.below(4));
    entry.slice = SliceId(n);
    entry.slice_length = static_cast<std::uint32_t>(1 + rng.below(kInlineLimit));
    entry.offset = static_cast<std::uint32_t>(rng.below(entry.slice_length));
    entry.length = static_cast<std::uint32_t>(1 + rng.below(entry.slice_length - entry.offset));
    entry.owner = BranchId(rng.next());
    entry.birth = some(rng);
    list.add(entry, std::string(entry.slice_length, static_cast<char>(rng.next())));
  }
  return list.row();
}

LockRow random_locks(Rng& rng) {
  LockRow row;
  for (std::uint64_t n = rng.below(9); n > 0; --n) {
    FileLock lock;
    lock.of = {SessionId(1 + rng.below(2)), rng.below(3)};
    lock.start = rng.below(1000);
    lock.end = lock.start + rng.below(1000);
    lock.kind = static_cast<LockKind>(rng.below(2));
    lock.type = static_cast<LockType>(rng.below(2));
    set_range(row.locks, lock);
  }
  return row;
}

std::string random_acl(Rng& rng) {
  std::string value(4, '\0');
  value[0] = 2;
  const auto put = [&](std::uint16_t tag, std::uint32_t id) {
    char raw[8];
    store_little(raw, tag);
    store_little(raw + 2, static_cast<std::uint16_t>(rng.below(8)));
    store_little(raw + 4, id);
    value.append(raw, sizeof raw);
  };
  const bool named = rng.one_in(2);
  put(0x01, ~0u);
  if (named) put(0x02, some(rng));
  put(0x04, ~0u);
  if (named) put(0x08, some(rng));
  if (named || rng.one_in(2)) put(0x10, ~0u);
  put(0x20, ~0u);
  return value;
}

/// Rows whose fields are at their limits, or random.
std::vector<std::string> valid_rows(Rng& rng) {
  MapRow map{{0, 3},
             {{1, 10, 0, 1000, "tcp:host:1", "rack"}, {2, 10, 2, ~0ULL, "unix:/run/x", ""}}};
  FsckState state;
  state.position = entry_key(BranchId(1), InodeId(2), "name");
  return {random_inode(rng).encode(),
          EntryRow{{}, InodeId(1 + rng.below(1000)), 8}.encode(),
          random_slices(rng).encode(),
          XattrRow{{}, std::string(rng.below(100), 'v')}.encode(),
          DeadRow{{kDying, 2}, BranchId(rng.next()), some(rng), some(rng), 0, kPinned}.encode(),
          UnlinkedRow{{}, SessionId(rng.next())}.encode(),
          TrashedRow{{}, SessionId(1), rng.next(), rng.next(), "name"}.encode(),
          ReservedRow{{}, 64, rng.next(), rng.next()}.encode(),
          OutcomeRow{{}, 23, "reply"}.encode(),
          SessionRow{{}, some_time(rng), "host", "mount /mnt", "nonce"}.encode(),
          NumberRow{{}, rng.next()}.encode(),
          ScrubRow{{}, some_time(rng), some_time(rng), 1, 2, 3, "cursor"}.encode(),
          AttachmentRow{{}, Lease::recalled, rng.next(), rng.next(), some_time(rng)}.encode(),
          map.encode(),
          VolumeRow{{}, BranchId(1), some_time(rng)}.encode(),
          ImageRow{{}, BranchId(1), ImageState::published, some_time(rng), 1, 2, 3, "/src", "d1"}
              .encode(),
          FlushedRow{{kEndedWell, 0}, rng.next()}.encode(),
          WindowRow{{}, SliceId(rng.next())}.encode(),
          HeadRow{}.encode(),
          HeadRow{}.encode().substr(0, 84),
          state.encode(),
          random_locks(rng).encode(),
          random_acl(rng),
          dead_key({BranchId(1), 2, 3, SliceId(4), InodeId(5), 6, 7}),
          entry_key(BranchId(1), InodeId(2), "name"),
          slices_key(BranchId(1), InodeId(2), 3),
          unlinked_key(BranchId(1), 2, InodeId(3)),
          trashed_key(BranchId(1), 2, InodeId(3)),
          deleting_name(BranchId(1), "name")};
}

TEST(Fuzz, RowsAndKeys) {
  Fuzz fuzz("meta");
  for (int i = 0; i < 8; ++i)
    for (const std::string& row : valid_rows(fuzz.rng())) {
      EXPECT_TRUE(rows(bytes_of(row), fuzz.rng()) || is_deleting_name(row))
          << testing::PrintToString(row);
      fuzz.add(row);
    }
  fuzz.run([&](ByteSpan bytes) { return rows(bytes, fuzz.rng()); });
}

// ---- A server, asked anything ----

/// Calls one after the other: number of the method u8, length u16, request.
class Script {
 public:
  template <typename Request, typename Reply>
  void add(std::uint8_t number, Status (MetaService::*)(const Call&, const Request&, Reply*),
           const Request& request) {
    const std::string bytes = request.SerializeAsString();
    char head[3];
    store_little(head, number);
    store_little(head + 1, static_cast<std::uint16_t>(bytes.size()));
    text_.append(head, sizeof head).append(bytes);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

template <typename Request, typename Reply>
bool ask(Site& site, SessionId session, ByteSpan payload,
         Status (MetaService::*method)(const Call&, const Request&, Reply*)) {
  Request request;
  if (!request.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) return false;
  const auto reply = site.ask(method, request, session);
  return taken(reply);
}

bool ask(Site& site, SessionId session, std::uint8_t number, ByteSpan payload) {
  switch (number) {
#define SL_ASK(number, method, Request, Reply) \
  case number:                                 \
    return ask(site, session, payload, &MetaService::method);
    SL_META_METHODS(SL_ASK)
#undef SL_ASK
    default:
      return false;
  }
}

constexpr std::uint8_t kSleeps = 53;  // await_locks

/// A site whose volume has a directory, and in it a file with contents; always the same numbers.
struct Asked {
  Asked() : first(site, "one"), second(site, "two") {
    EXPECT_TRUE(site.create_volume("v").ok());
    EXPECT_TRUE(first.attach("v").ok());
    (void)second.attach("v");
    directory = first.mkdir(1, "d").value();
    file = first.create(directory, "f").value();
  }
  bool run(ByteSpan script) {
    bool any = false;
    while (script.size() >= 3) {
      const auto number = load_little<std::uint8_t>(script.data());
      const std::size_t length =
          std::min<std::size_t>(load_little<std::uint16_t>(script.data() + 1), script.size() - 3);
      if (number != kSleeps)
        any = ask(site, first.session, number, script.subspan(3, length)) || any;
      script = script.subspan(3 + length);
    }
    return any;
  }

  Site site;
  Client first, second;
  std::uint64_t directory = 0, file = 0;
};

pb::CommitRequest some_commit(const Asked& asked, bool is_inline) {
  pb::CommitRequest commit;
  asked.first.fill(commit.mutable_on(), 5);
  commit.set_inode(asked.file);
  pb::NewSlice* slice = commit.add_slices();
  slice->mutable_entry()->set_length(5);
  slice->mutable_entry()->set_slice_length(5);
  slice->mutable_entry()->set_slice(1);
  slice->set_batch(1);
  if (is_inline) {
    slice->mutable_entry()->set_kind(pb::SliceEntry::INLINE);
    slice->mutable_entry()->set_inline_data("hello");
  }
  commit.set_length(5);
  return commit;
}

void add_tree_calls(const Asked& asked, Script* script) {
  pb::CreateRequest create;
  asked.first.fill(create.mutable_on(), 9);
  create.set_parent(asked.directory);
  create.set_name("new");
  create.set_mode(0100644);
  script->add(23, &MetaService::create, create);
  create.set_name("link");
  create.set_mode(0120777);
  create.set_target("where");
  create.mutable_on()->set_request(10);
  script->add(23, &MetaService::create, create);
  pb::LinkRequest link;
  asked.first.fill(link.mutable_on());
  link.set_inode(asked.file);
  link.set_parent(1);
  link.set_name("second");
  script->add(25, &MetaService::link, link);
  pb::RenameRequest rename;
  asked.first.fill(rename.mutable_on());
  rename.set_parent(asked.directory);
  rename.set_name("new");
  rename.set_new_parent(1);
  rename.set_new_name("second");
  script->add(28, &MetaService::rename, rename);
  pb::UnlinkRequest unlink;
  asked.first.fill(unlink.mutable_on());
  unlink.set_parent(asked.directory);
  unlink.set_name("f");
  unlink.set_held(true);
  script->add(26, &MetaService::unlink, unlink);
  pb::OpenRequest open;
  asked.first.fill(open.mutable_on());
  open.set_inode(asked.file);
  open.set_truncate(true);
  open.set_write(true);
  script->add(29, &MetaService::open, open);
  pb::ReadDirectoryRequest list;
  asked.first.fill(list.mutable_on());
  list.set_inode(asked.directory);
  list.set_limit(10);
  list.set_attributes(true);
  script->add(30, &MetaService::read_directory, list);
}

void add_attribute_calls(const Asked& asked, Script* script) {
  pb::SetAttributesRequest set;
  asked.first.fill(set.mutable_on());
  set.set_inode(asked.file);
  set.set_length(100'000'000);
  set.set_mode(0100600);
  script->add(22, &MetaService::set_attributes, set);
  pb::XattrRequest xattr;
  asked.first.fill(xattr.mutable_on());
  xattr.set_inode(asked.file);
  xattr.set_name("user.a");
  xattr.set_value("value");
  script->add(33, &MetaService::set_xattr, xattr);
  xattr.set_name(std::string(kAccessAcl));
  Rng rng(3);
  xattr.set_value(random_acl(rng));
  script->add(33, &MetaService::set_xattr, xattr);
  pb::LockRequest lock;
  asked.first.fill(lock.mutable_on());
  lock.set_inode(asked.file);
  lock.mutable_lock()->set_end(99);
  lock.mutable_lock()->set_owner(1);
  lock.mutable_lock()->set_type(pb::FileLock::WRITE);
  script->add(50, &MetaService::lock, lock);
  script->add(51, &MetaService::test_lock, lock);
}

void add_content_calls(const Asked& asked, Script* script) {
  pb::ReserveSlicesRequest reserve;
  reserve.set_session(asked.first.session.value);
  reserve.set_branch(asked.first.branch.value);
  reserve.set_count(64);
  script->add(41, &MetaService::reserve_slices, reserve);
  script->add(42, &MetaService::commit, some_commit(asked, true));
  script->add(42, &MetaService::commit, some_commit(asked, false));
  pb::FallocateRequest allocate;
  asked.first.fill(allocate.mutable_on());
  allocate.set_inode(asked.file);
  allocate.set_mode(3);
  allocate.set_offset(1);
  allocate.set_length(100'000'000);
  script->add(43, &MetaService::fallocate, allocate);
  pb::CopyRangeRequest copy;
  asked.first.fill(copy.mutable_on());
  copy.set_inode(asked.file);
  copy.set_source_branch(asked.first.branch.value);
  copy.set_source_inode(asked.file);
  copy.set_offset(1'000'000);
  copy.set_length(4);
  script->add(44, &MetaService::copy_range, copy);
  pb::FileMapRequest map;
  asked.first.fill(map.mutable_on());
  map.set_inode(asked.file);
  map.set_chunks(256);
  map.set_skip_holes(true);
  script->add(40, &MetaService::file_map, map);
}

void add_member_calls(const Asked& asked, Script* script) {
  pb::HeartbeatRequest beat;
  beat.set_session(asked.first.session.value);
  beat.add_held_branch(asked.first.branch.value);
  beat.add_held_inode(asked.file);
  script->add(2, &MetaService::heartbeat, beat);
  pb::RegisterTargetsRequest targets;
  pb::Target* target = targets.add_targets();
  target->set_id(1);
  target->set_endpoint("unix:/x");
  target->set_state("up");
  script->add(18, &MetaService::register_targets, targets);
  pb::VolumeSettings settings;
  settings.set_name("v");
  settings.set_quota_bytes(1'000'000);
  settings.set_trash_seconds(60);
  script->add(73, &MetaService::volume_set, settings);
  pb::EscrowRequest escrow;
  asked.first.fill(escrow.mutable_on());
  escrow.set_wanted(1000);
  script->add(74, &MetaService::escrow, escrow);
  pb::ImageRequest image;
  image.set_name("set");
  image.set_version("1");
  image.set_session(asked.first.session.value);
  script->add(9, &MetaService::image_begin, image);
  script->add(10, &MetaService::image_freeze, image);
  pb::AttachRequest attach;
  attach.set_session(asked.first.session.value);
  attach.set_volume("v");
  attach.set_take_over(true);
  script->add(14, &MetaService::attach, attach);
}

void add_keeper_calls(const Asked& asked, Script* script) {
  pb::KeeperRequest keeper;
  keeper.set_limit(10);
  script->add(60, &MetaService::dead_slices, keeper);
  script->add(62, &MetaService::long_chunks, keeper);
  script->add(64, &MetaService::housekeeping, keeper);
  pb::SettleRequest settle;
  settle.add_rows(dead_key({asked.first.branch, 1, 1, SliceId(1), InodeId(asked.file), 0, 1}));
  script->add(61, &MetaService::settle_dead, settle);
  pb::FsckRequest check;
  check.set_cursor(FsckState{}.encode());
  script->add(65, &MetaService::fsck_references, check);
  pb::TrashListRequest trash;
  trash.set_branch(asked.first.branch.value);
  trash.set_limit(3);
  script->add(70, &MetaService::trash_list, trash);
  pb::TrashRestoreRequest restore;
  asked.first.fill(restore.mutable_on());
  restore.mutable_item()->set_inode(asked.file);
  script->add(71, &MetaService::trash_restore, restore);
  pb::TrashEmptyRequest empty;
  empty.set_branch(asked.first.branch.value);
  script->add(72, &MetaService::trash_empty, empty);
  pb::ScrubState scrub;
  scrub.set_target(1);
  scrub.set_cursor("c");
  script->add(76, &MetaService::note_scrub, scrub);
  script->add(75, &MetaService::scrub_states, pb::Empty());
}

TEST(Fuzz, WhatAClientAsks) {
  Fuzz fuzz("meta-requests");
  using Calls = void (*)(const Asked&, Script*);
  for (const Calls add :
       std::initializer_list<Calls>{add_tree_calls, add_attribute_calls, add_content_calls,
                                    add_member_calls, add_keeper_calls}) {
    Asked asked;
    Script script;
    add(asked, &script);
    EXPECT_TRUE(asked.run(bytes_of(script.text())));
    fuzz.add(script.text());
  }
  google::protobuf::SetLogHandler(nullptr);  // of texts that are no UTF-8
  fuzz.set_allowance(8_MiB);                 // the engine's
  fuzz.run([](ByteSpan script) {
    Asked asked;
    const bool any = asked.run(script);
    EXPECT_THAT(asked.site.check(), testing::IsEmpty());
    return any;
  });
}

}  // namespace
}  // namespace starlane::meta
