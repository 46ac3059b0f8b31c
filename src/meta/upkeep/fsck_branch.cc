#include "meta/upkeep/fsck_branch.h"

#include <map>
#include <set>

#include "meta/chunk.h"
#include "meta/contents.h"
#include "meta/locks/living_locks.h"
#include "meta/nodes.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kScanPage = 4'096;     // of what is counted again in one snapshot
constexpr std::size_t kLocatePage = 16'384;  // inodes whose names are looked for at once

std::string number(std::uint64_t n) { return std::to_string(n); }
std::string inode_text(InodeId inode) { return "inode " + number(inode.value); }

/// Names in messages: what a terminal cannot show is left out.
std::string quoted(std::string_view name) {
  std::string out = "\"";
  for (const char c : name)
    out.push_back(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f ? c : '?');
  return out + "\"";
}

template <typename Visit>
Status each_row(kv::Transaction& t, KeyRange range, const Visit& visit) {
  for (;;) {
    const std::vector<kv::Row> rows = SL_TRY(t.scan({range.first, range.last, kScanPage}));
    for (const kv::Row& row : rows) SL_TRY(visit(row));
    if (rows.size() < kScanPage) return {};
    range.first = rows.back().key + '\0';
  }
}

}  // namespace

std::string FsckState::encode() const {
  RowEncoder encoder(RowHeader{});
  encoder(phase, branch, counted_names, names, unlinked_inodes, unlinked_rows, directory, entries,
          subdirectories, file, covered);
  for (const Usage* one : {&usage, &usage_before})
    encoder(one->bytes, one->inodes, one->held, one->trash_bytes, one->trash_inodes);
  encoder.text(position);
  return encoder.take();
}

Result<FsckState> FsckState::decode(std::string_view cursor) {
  RowDecoder decoder(cursor);
  FsckState s;
  decoder(s.phase, s.branch, s.counted_names, s.names, s.unlinked_inodes, s.unlinked_rows,
          s.directory, s.entries, s.subdirectories, s.file, s.covered);
  for (Usage* one : {&s.usage, &s.usage_before})
    decoder(one->bytes, one->inodes, one->held, one->trash_bytes, one->trash_inodes);
  s.position = decoder.text();
  if (!decoder.done() || s.phase > FsckPhase::locks) {
    return Status(Errc::invalid, "this cursor is not one that was given out");
  }
  return s;
}

void FsckBranch::problem(const std::string& text) {
  reply_->add_problems("in branch " + number(s_.branch.value) + " " + text);
}

void FsckBranch::begin(FsckPhase phase) {
  s_.phase = phase;
  s_.position.clear();
}

Result<std::vector<kv::Row>> FsckBranch::page(Table table, std::size_t limit) {
  KeyRange range = table_range(Space::branch, s_.branch, table);
  if (s_.position >= range.first) range.first = s_.position + '\0';
  std::vector<kv::Row> rows = SL_TRY(t_.scan({range.first, range.last, limit}));
  if (!rows.empty()) s_.position = rows.back().key;
  return rows;
}

Result<bool> FsckBranch::step(std::size_t limit) {
  const auto each = [&](Table table, FsckPhase next, const auto& check) -> Status {
    const std::vector<kv::Row> rows = SL_TRY(page(table, limit));
    for (const kv::Row& row : rows) SL_TRY(check(row));
    if (rows.size() < limit) begin(next);
    return {};
  };
  switch (s_.phase) {
    case FsckPhase::system:
      SL_TRY(start_branch());
      begin(head_.state == BranchState::deleting ? FsckPhase::chunks : FsckPhase::inodes);
      return false;
    case FsckPhase::inodes:
      SL_TRY(each(Table::inode, FsckPhase::entries,
                  [&](const kv::Row& row) { return check_inode(row); }));
      return false;
    case FsckPhase::entries: {
      const std::vector<kv::Row> rows = SL_TRY(page(Table::entry, limit));
      SL_TRY(check_entries(rows));
      if (rows.size() == limit) return false;
      SL_TRY(close_directory());
      begin(FsckPhase::names);
      return false;
    }
    case FsckPhase::names:
      SL_TRY(each(Table::name, FsckPhase::xattrs,
                  [&](const kv::Row& row) { return check_name_row(row); }));
      return false;
    case FsckPhase::xattrs:
      SL_TRY(each(Table::xattr, FsckPhase::chunks,
                  [&](const kv::Row& row) { return check_xattr(row); }));
      return false;
    case FsckPhase::chunks:
      SL_TRY(each(Table::slices, FsckPhase::unlinked,
                  [&](const kv::Row& row) { return check_chunk(row); }));
      if (s_.phase != FsckPhase::chunks) SL_TRY(close_file());
      return false;
    case FsckPhase::unlinked:
      SL_TRY(each(Table::unlinked, FsckPhase::trashed,
                  [&](const kv::Row& row) { return check_unlinked(row); }));
      return false;
    case FsckPhase::trashed:
      SL_TRY(each(Table::trashed, FsckPhase::pins,
                  [&](const kv::Row& row) { return check_trashed(row); }));
      return false;
    case FsckPhase::pins:
      SL_TRY(each(Table::pin, FsckPhase::dead, [&](const kv::Row& row) { return check_pin(row); }));
      return false;
    case FsckPhase::dead:
      SL_TRY(each(Table::dead, FsckPhase::reserved,
                  [&](const kv::Row& row) { return tell_dead(row); }));
      return false;
    case FsckPhase::reserved:
      SL_TRY(each(Table::reserved, FsckPhase::outcomes,
                  [&](const kv::Row& row) { return tell_reserved(row); }));
      return false;
    case FsckPhase::outcomes:
      SL_TRY(each(Table::outcome, FsckPhase::locks,
                  [&](const kv::Row& row) { return check_outcome(row); }));
      return false;
    case FsckPhase::locks:
      SL_TRY(each(Table::lock, FsckPhase::usage,
                  [&](const kv::Row& row) { return check_locks(row); }));
      return false;
    case FsckPhase::usage:
      return check_usage();
    case FsckPhase::locate: {
      const std::vector<kv::Row> rows = SL_TRY(page(Table::inode, kLocatePage));
      SL_TRY(locate(rows));
      return rows.size() < kLocatePage;
    }
  }
  return true;
}

/// What the accumulators of the branch say.
Result<FsckState::Usage> FsckBranch::counted_usage() {
  std::vector<std::string> keys;
  for (const What what : {What::bytes, What::inodes, What::held, What::trash_bytes,
                          What::trash_inodes, What::escrow_all})
    keys.push_back(accumulator_key(s_.branch, InodeId{}, what));
  const std::vector<std::int64_t> totals = SL_TRY(t_.totals(keys));
  return FsckState::Usage{totals[0] - totals[5], totals[1], totals[2], totals[3], totals[4]};
}

Status FsckBranch::start_branch() {
  s_.usage_before = SL_TRY(counted_usage());
  if (head_.state == BranchState::deleting) return {};
  const std::optional<kv::Row> root = SL_TRY(t_.get(inode_key(s_.branch, kRootInode)));
  if (!root) problem("the root directory is missing");
  return {};
}

Status FsckBranch::check_inode(const kv::Row& row) {
  ++s_.usage.inodes;
  reply_->set_inodes(reply_->inodes() + 1);
  const InodeId inode{KeyReader(row.key).u64()};
  const Result<InodeRow> decoded = InodeRow::decode(row.value);
  if (!decoded.ok()) {
    problem(inode_text(inode) + " cannot be read: " + decoded.status().text());
    return {};
  }
  return decoded->is_directory() ? check_directory(inode, *decoded) : check_file(inode, *decoded);
}

void FsckBranch::count_unlinked(InodeId inode) {
  --s_.usage.inodes;
  s_.unlinked_inodes += mix64(inode.value);
}

Status FsckBranch::check_directory(InodeId inode, const InodeRow& row) {
  if (row.nlink == 0)
    count_unlinked(inode);
  else if (inode != kRootInode)
    s_.counted_names += mix64(inode.value);
  const DirectoryTotals totals = SL_TRY(read_totals(t_, s_.branch, inode, row));
  if (totals.entries == 0)
    return {};  // Entries beyond the count are found where entries are counted.
  const KeyRange range = entries_of(s_.branch, inode);
  if (SL_TRY(t_.scan({range.first, range.last, 1})).empty()) {
    problem("directory " + number(inode.value) + " counts " + number(totals.entries) +
            " entries but has none");
  }
  return {};
}

Status FsckBranch::check_file(InodeId inode, const InodeRow& row) {
  if (row.nlink == 0) {
    count_unlinked(inode);
  } else {
    s_.counted_names += row.nlink * mix64(inode.value);
    s_.usage.bytes += static_cast<std::int64_t>(row.bytes);
  }
  if (row.nlink > 1) {
    const KeyRange range = names_of(s_.branch, inode);
    const std::size_t further = SL_TRY(t_.scan({range.first, range.last, row.nlink + 1})).size();
    if (further != row.nlink - 1) {
      problem(inode_text(inode) + " has " + number(row.nlink) + " links but " + number(further) +
              " rows for further names");
    }
  }
  if (row.bytes > 0) {
    const KeyRange range = slices_of(s_.branch, inode);
    if (SL_TRY(t_.scan({range.first, range.last, 1})).empty()) {
      problem(inode_text(inode) + " holds " + number(row.bytes) + " bytes but has no slices");
    }
  }
  return {};
}

Status FsckBranch::check_entries(const std::vector<kv::Row>& rows) {
  std::vector<std::string> keys;
  std::vector<const kv::Row*> sound;
  for (const kv::Row& row : rows) {
    reply_->set_entries(reply_->entries() + 1);
    const EntryKey key = SL_TRY(parse_entry_key(row.key));
    const Result<EntryRow> entry = EntryRow::decode(row.value);
    if (!entry.ok()) {
      problem("entry " + quoted(key.name) + " of directory " + number(key.parent.value) +
              " cannot be read");
      continue;
    }
    keys.push_back(inode_key(s_.branch, entry->inode));
    sound.push_back(&row);
  }
  const Rows inodes = SL_TRY(t_.get_many(keys));
  for (std::size_t i = 0; i < sound.size(); ++i) SL_TRY(check_entry(*sound[i], inodes[i]));
  return {};
}

Status FsckBranch::check_entry(const kv::Row& row, const std::optional<kv::Row>& found) {
  const EntryKey key = SL_TRY(parse_entry_key(row.key));
  const EntryRow entry = SL_TRY(EntryRow::decode(row.value));
  if (key.parent != s_.directory) {
    SL_TRY(close_directory());
    s_.directory = key.parent;
  }
  ++s_.entries;
  s_.subdirectories += entry.type == kDirectory >> 12;
  s_.names += mix64(entry.inode.value);
  const std::string what =
      "entry " + quoted(key.name) + " of directory " + number(key.parent.value);
  if (!found) {
    problem(what + " names " + inode_text(entry.inode) + ", which does not exist");
    return {};
  }
  const Result<InodeRow> inode = InodeRow::decode(found->value);
  if (!inode.ok()) return {};  // Told before.
  if (entry.type != inode->mode >> 12)
    problem(what + " has another type than " + inode_text(entry.inode));
  if (inode->nlink == 0)
    problem(what + " names " + inode_text(entry.inode) + ", which has no links");
  if (inode->nlink == 0 || inode->parent == key.parent) return {};
  if (inode->nlink > 1 && SL_TRY(t_.get(name_key(s_.branch, entry.inode, key.parent, key.name)))) {
    return {};
  }
  problem(what + " is unknown to " + inode_text(entry.inode) + ", whose parent is " +
          number(inode->parent.value));
  return {};
}

// The sums span pages and so snapshots: what does not fit is counted again in this one.
Status FsckBranch::close_directory() {
  const InodeId directory = std::exchange(s_.directory, InodeId{});
  std::uint64_t entries = std::exchange(s_.entries, 0);
  std::uint64_t subdirectories = std::exchange(s_.subdirectories, 0);
  if (!directory) return {};
  const std::optional<kv::Row> row = SL_TRY(t_.get(inode_key(s_.branch, directory)));
  const Result<InodeRow> inode = need<InodeRow>(row, "directory");
  DirectoryTotals totals;
  if (inode.ok()) totals = SL_TRY(read_totals(t_, s_.branch, directory, *inode));
  if (inode.ok() && totals.entries == entries && totals.subdirectories == subdirectories) return {};
  entries = subdirectories = 0;
  SL_TRY(each_row(t_, entries_of(s_.branch, directory), [&](const kv::Row& one) -> Status {
    ++entries;
    const Result<EntryRow> entry = EntryRow::decode(one.value);
    if (entry.ok()) subdirectories += entry->type == kDirectory >> 12;
    return {};
  }));
  if (!inode.ok() || !inode->is_directory()) {
    if (entries > 0) {
      problem(number(entries) + " entries lie in " + inode_text(directory) +
              ", which is no directory");
    }
    return {};
  }
  if (totals.entries != entries || totals.subdirectories != subdirectories) {
    problem("directory " + number(directory.value) + " counts " + number(totals.entries) +
            " entries and " + number(totals.subdirectories) + " subdirectories but has " +
            number(entries) + " and " + number(subdirectories));
  }
  return {};
}

Status FsckBranch::check_name_row(const kv::Row& row) {
  KeyReader key(row.key);
  const InodeId inode{key.u64()};
  const InodeId parent{key.u64()};
  const std::string name(key.rest());
  const Rows rows =
      SL_TRY(t_.get_many({inode_key(s_.branch, inode), entry_key(s_.branch, parent, name)}));
  const std::string what = "the further name " + quoted(name) + " in directory " +
                           number(parent.value) + " of " + inode_text(inode);
  if (!rows[0]) {
    problem(what + " belongs to an inode that does not exist");
    return {};
  }
  const Result<EntryRow> entry = need<EntryRow>(rows[1], "entry");
  if (!entry.ok() || entry->inode != inode) problem(what + " has no entry");
  return {};
}

Status FsckBranch::check_xattr(const kv::Row& row) {
  KeyReader key(row.key);
  const InodeId inode{key.u64()};
  const std::string what = "the attribute " + quoted(key.rest()) + " of " + inode_text(inode) + " ";
  if (!XattrRow::decode(row.value).ok()) problem(what + "cannot be read");
  const std::optional<kv::Row> found = SL_TRY(t_.get(inode_key(s_.branch, inode)));
  if (!found) {
    problem(what + "belongs to an inode that does not exist");
    return {};
  }
  const Result<InodeRow> decoded = InodeRow::decode(found->value);
  if (decoded.ok() && (decoded->flags & kHasXattrs) == 0)
    problem(what + "is unknown to its inode, and will never be removed");
  return {};
}

Status FsckBranch::check_pin(const kv::Row& row) {
  KeyReader key(row.key);
  const InodeId inode{key.u64()};
  const SessionId session{key.u64()};
  const std::string what =
      "the hold of session " + number(session.value) + " on " + inode_text(inode);
  if (head_.state != BranchState::deleting && !SL_TRY(t_.get(inode_key(s_.branch, inode))))
    problem(what + " is on an inode that does not exist");
  return check_session(session, what);
}

Status FsckBranch::check_outcome(const kv::Row& row) {
  KeyReader key(row.key);
  const SessionId session{key.u64()};
  const std::string what =
      "the outcome of request " + number(key.u64()) + " of session " + number(session.value);
  if (!OutcomeRow::decode(row.value).ok()) problem(what + " cannot be read");
  return check_session(session, what);
}

// Locks that have ended may outlive their file: they go with their session.
Status FsckBranch::check_locks(const kv::Row& row) {
  const InodeId inode{KeyReader(row.key).u64()};
  const std::string what = "the locks of " + inode_text(inode);
  const Result<LockRow> decoded = LockRow::decode(row.value);
  if (!decoded.ok()) {
    problem(what + " cannot be read");
    return {};
  }
  if (decoded->locks.empty()) problem(what + " are none");
  if (!well_ordered(decoded->locks)) problem(what + " are out of order, or overlap");
  std::set<SessionId> sessions;
  for (const FileLock& lock : decoded->locks) sessions.insert(lock.of.session);
  for (const SessionId session : sessions)
    SL_TRY(check_session(
        session, "a lock of session " + number(session.value) + " on " + inode_text(inode)));
  if (head_.state == BranchState::deleting || SL_TRY(t_.get(inode_key(s_.branch, inode))))
    return {};
  const std::vector<FileLock> living = SL_TRY(living_locks(t_, s_.branch, row));
  if (!living.empty()) problem(what + " are held, but it does not exist");
  return {};
}

// What a session left behind is removed while it is listed as dead, and then the listing.
Status FsckBranch::check_session(SessionId session, const std::string& what) {
  const auto [at, added] = sessions_.try_emplace(session, false);
  if (added) {
    const Rows rows = SL_TRY(t_.get_many({session_key(session), dead_session_key(session)}));
    at->second = rows[0] || rows[1];
  }
  if (!at->second) problem(what + " will never go: the session does not exist");
  return {};
}

pb::FsckReference* FsckBranch::tell(const char* kind, const Entry& entry, InodeId inode,
                                    std::uint32_t chunk) {
  pb::FsckReference* reference = reply_->add_references();
  reference->set_kind(kind);
  reference->set_branch(s_.branch.value);
  reference->set_inode(inode.value);
  reference->set_chunk(chunk);
  reference->set_owner(entry.owner.value);
  reference->set_slice(entry.slice.value);
  reference->set_slice_length(entry.slice_length);
  reference->set_placement_epoch(entry.placement_epoch);
  return reference;
}

Result<pb::FsckReference*> FsckBranch::tell_counted(const char* kind, const Entry& entry,
                                                    InodeId inode, std::uint32_t chunk) {
  const bool pinned = (entry.flags & kPinned) != 0;
  const std::int64_t counted =
      SL_TRY(t_.total(pinned ? image_pins_key(entry.owner) : count_key(entry.slice)));
  pb::FsckReference* reference = tell(kind, entry, inode, chunk);
  reference->set_pinned(pinned);
  reference->set_counted(counted);
  return reference;
}

Status FsckBranch::check_chunk(const kv::Row& row) {
  const SlicesKey key = SL_TRY(parse_slices_key(row.key));
  if (key.inode != s_.file) {
    SL_TRY(close_file());
    s_.file = key.inode;
  }
  Result<SlicesRow> slices = SlicesRow::decode(row.value);
  if (!slices.ok()) {
    problem("chunk " + number(key.chunk) + " of " + inode_text(key.inode) +
            " cannot be read: " + slices.status().text());
    return {};
  }
  if (!windows_) windows_ = SL_TRY(SyncWindows::read(t_));
  const std::uint64_t changed = windows_->empty() ? 0 : SL_TRY(changed_at(key.inode));
  for (const Entry& entry : references_of(slices->entries)) {
    pb::FsckReference* reference = SL_TRY(tell_counted("live", entry, key.inode, key.chunk));
    reference->set_may_be_unsynced(windows_->may_lack(entry.slice, changed));
  }
  s_.covered += Chunk(std::move(*slices)).covered();
  return {};
}

/// When the file was last changed, as the server's clock had it; 0: not known.
Result<std::uint64_t> FsckBranch::changed_at(InodeId inode) {
  const std::optional<kv::Row> row = SL_TRY(t_.get(inode_key(s_.branch, inode)));
  if (!row) return 0;
  const Result<InodeRow> decoded = InodeRow::decode(row->value);
  return decoded.ok() ? to_ns(decoded->ctime) : 0;
}

Result<std::uint64_t> FsckBranch::covered_by(InodeId inode) {
  std::uint64_t covered = 0;
  SL_TRY(each_row(t_, slices_of(s_.branch, inode), [&](const kv::Row& row) -> Status {
    Result<SlicesRow> slices = SlicesRow::decode(row.value);
    if (slices.ok()) covered += Chunk(std::move(*slices)).covered();
    return {};
  }));
  return covered;
}

Status FsckBranch::close_file() {
  const InodeId file = std::exchange(s_.file, InodeId{});
  std::uint64_t covered = std::exchange(s_.covered, 0);
  if (!file || head_.state == BranchState::deleting) return {};
  const std::optional<kv::Row> row = SL_TRY(t_.get(inode_key(s_.branch, file)));
  const Result<InodeRow> inode = need<InodeRow>(row, "file");
  if (inode.ok() && inode->bytes == covered) return {};
  if (!inode.ok()) {
    const KeyRange range = slices_of(s_.branch, file);
    if (!row && !SL_TRY(t_.scan({range.first, range.last, 1})).empty()) {
      problem("slices belong to " + inode_text(file) + ", which does not exist");
    }
    return {};
  }
  covered = SL_TRY(covered_by(file));
  // A file that is being freed loses its chunks before itself.
  if (inode->bytes != covered && inode->nlink > 0) {
    problem(inode_text(file) + " says that it holds " + number(inode->bytes) +
            " bytes, its slices " + number(covered));
  }
  return {};
}

Status FsckBranch::check_unlinked(const kv::Row& row) {
  const UnlinkedKey key = SL_TRY(parse_unlinked_key(row.key));
  s_.unlinked_rows += mix64(key.inode.value);
  return check_listed(key.inode, "unlinked");
}

Status FsckBranch::check_trashed(const kv::Row& row) {
  const TrashedKey key = SL_TRY(parse_trashed_key(row.key));
  s_.unlinked_rows += mix64(key.inode.value);
  ++s_.usage.trash_inodes;
  const Result<TrashedRow> trashed = TrashedRow::decode(row.value);
  if (trashed.ok())
    s_.usage.trash_bytes += static_cast<std::int64_t>(trashed->bytes);
  else
    problem("what the trash has of " + inode_text(key.inode) + " cannot be read");
  return check_listed(key.inode, "deleted");
}

/// An inode that U or B lists has no name.
Status FsckBranch::check_listed(InodeId inode, const std::string& as) {
  if (head_.state == BranchState::deleting) return {};
  const std::optional<kv::Row> found = SL_TRY(t_.get(inode_key(s_.branch, inode)));
  const Result<InodeRow> row = need<InodeRow>(found, "file");
  if (!row.ok()) problem(inode_text(inode) + " is listed as " + as + " but does not exist");
  if (row.ok() && row->nlink != 0) {
    problem(inode_text(inode) + " is listed as " + as + " but has " + number(row->nlink) +
            " links");
  }
  return {};
}

Status FsckBranch::tell_dead(const kv::Row& row) {
  const DeadKey key = SL_TRY(parse_dead_key(row.key));
  const Result<DeadRow> dead = DeadRow::decode(row.value);
  if (!dead.ok()) {
    problem("the dead reference to slice " + number(key.slice.value) + " cannot be read");
    return {};
  }
  s_.usage.held += dead->slice_length;
  Entry entry;
  entry.slice = key.slice;
  entry.owner = dead->owner;
  entry.slice_length = dead->slice_length;
  entry.placement_epoch = dead->placement_epoch;
  entry.flags = dead->flags;
  SL_TRY(tell_counted("dead", entry, key.inode, key.chunk));
  return {};
}

Status FsckBranch::tell_reserved(const kv::Row& row) {
  KeyReader key(row.key);
  const SessionId session{key.u64()};
  const std::uint64_t first = key.u64();
  SL_TRY(check_session(session, "the reservation of slices from " + number(first) +
                                    " on by session " + number(session.value)));
  const Result<ReservedRow> reserved = ReservedRow::decode(row.value);
  if (!reserved.ok()) {
    problem("the reservation of slices from " + number(first) + " on cannot be read");
    return {};
  }
  for (std::uint32_t i = 0; i < reserved->count; ++i) {
    if (reserved->committed >> i & 1) continue;
    Entry entry;
    entry.slice = SliceId{first + i};
    entry.owner = s_.branch;
    entry.placement_epoch = static_cast<std::uint32_t>(reserved->map_epoch);
    tell("reserved", entry, InodeId{}, 0);
  }
  return {};
}

// Accumulators that moved meanwhile belong to a branch in use: what was counted is of no one
// moment.
void FsckBranch::compare(const char* what, std::int64_t before, std::int64_t now,
                         std::int64_t counted) {
  if (before != now || now == counted) return;
  problem("usage says " + std::to_string(now) + " " + what + ", there are " +
          std::to_string(counted));
}

Result<bool> FsckBranch::check_usage() {
  const FsckState::Usage now = SL_TRY(counted_usage());
  if (head_.state == BranchState::deleting) return true;
  const FsckState::Usage& before = s_.usage_before;
  compare("bytes in files", before.bytes, now.bytes, s_.usage.bytes);
  compare("files and directories", before.inodes, now.inodes, s_.usage.inodes);
  compare("bytes held by dead slices", before.held, now.held, s_.usage.held);
  compare("bytes in the trash", before.trash_bytes, now.trash_bytes, s_.usage.trash_bytes);
  compare("things in the trash", before.trash_inodes, now.trash_inodes, s_.usage.trash_inodes);
  if (s_.counted_names == s_.names && s_.unlinked_inodes == s_.unlinked_rows) return true;
  begin(FsckPhase::locate);
  return false;
}

Status FsckBranch::locate(const std::vector<kv::Row>& rows) {
  std::map<InodeId, std::map<InodeId, std::uint64_t>> names;  // by parent: inode -> its names there
  std::vector<std::pair<InodeId, InodeRow>> linked;
  std::vector<InodeId> unlinked;
  for (const kv::Row& row : rows) {
    const InodeId inode{KeyReader(row.key).u64()};
    const Result<InodeRow> decoded = InodeRow::decode(row.value);
    if (!decoded.ok() || inode == kRootInode) continue;
    if (decoded->nlink == 0) {
      unlinked.push_back(inode);
      continue;
    }
    names[decoded->parent][inode] = 0;
    linked.emplace_back(inode, *decoded);
  }
  for (auto& [parent, wanted] : names) {
    SL_TRY(each_row(t_, entries_of(s_.branch, parent),
                    [&wanted = wanted](const kv::Row& row) -> Status {
                      const Result<EntryRow> entry = EntryRow::decode(row.value);
                      const auto at = entry.ok() ? wanted.find(entry->inode) : wanted.end();
                      if (at != wanted.end()) ++at->second;
                      return {};
                    }));
  }
  for (const auto& [inode, row] : linked) {
    const std::uint64_t found = names[row.parent][inode];
    const bool single = row.is_directory() || row.nlink == 1;
    if (found == 0) {
      problem(inode_text(inode) + " has no name in directory " + number(row.parent.value) +
              ", its parent");
    } else if (single && found > 1) {
      problem(inode_text(inode) + " has " + number(found) + " names but one link");
    }
  }
  return unlinked.empty() ? Status() : locate_unlinked(unlinked);
}

Status FsckBranch::locate_unlinked(const std::vector<InodeId>& inodes) {
  std::set<InodeId> left(inodes.begin(), inodes.end());
  const auto listed_as_unlinked = [&](const kv::Row& row) -> Status {
    left.erase(SL_TRY(parse_unlinked_key(row.key)).inode);
    return {};
  };
  const auto listed_in_trash = [&](const kv::Row& row) -> Status {
    left.erase(SL_TRY(parse_trashed_key(row.key)).inode);
    return {};
  };
  SL_TRY(each_row(t_, table_range(Space::branch, s_.branch, Table::unlinked), listed_as_unlinked));
  SL_TRY(each_row(t_, table_range(Space::branch, s_.branch, Table::trashed), listed_in_trash));
  for (const InodeId inode : left)
    problem(inode_text(inode) + " has no links and is neither listed as unlinked nor in the trash");
  return {};
}

}  // namespace starlane::meta
