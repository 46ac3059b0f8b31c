#include "meta/upkeep/drop_branch.h"

#include <algorithm>

#include "meta/contents.h"
#include "meta/library/library_rows.h"
#include "meta/nodes.h"
#include "meta/upkeep/leftovers.h"
#include "meta/upkeep/walk.h"
#include "proto/meta.pb.h"

namespace starlane::meta {
namespace {

constexpr std::size_t kChunkPage = 256;
constexpr std::size_t kReservedPage = 64;
constexpr std::size_t kRowPage = 1'000;
constexpr std::size_t kRecords = 64;  // branches that are worked on at once
constexpr int kTransactions = 16;     // of one step, of one branch
constexpr Table kPlainTables[] = {Table::entry,      Table::name,     Table::xattr,
                                  Table::history,    Table::unlinked, Table::trashed,
                                  Table::pin,        Table::outcome,  Table::lock,
                                  Table::write_open, Table::degraded, Table::long_chunk};

struct Doomed {
  BranchId branch;
  std::string record;  // the key of its volume's or data set's row
};

Result<std::vector<Doomed>> find_doomed(kv::Transaction& t) {
  std::vector<Doomed> all;
  const std::string first(1, kDeletingPrefix);
  const KeyRange volumes = prefix_range(volume_key(first));
  for (const kv::Row& row : SL_TRY(t.scan({volumes.first, volumes.last, kRecords}))) {
    all.push_back({SL_TRY(VolumeRow::decode(row.value)).branch, row.key});
  }
  KeyRange images = table_range(Space::system, BranchId{}, Table::image);
  images = prefix_range(images.first + first);
  for (const kv::Row& row : SL_TRY(t.scan({images.first, images.last, kRecords}))) {
    all.push_back({SL_TRY(ImageRow::decode(row.value)).branch, row.key});
  }
  return all;
}

/// The rows that one transaction removes; each kind begins when those before are gone.
class Dropper {
 public:
  Dropper(Change& change, std::string record)
      : change_(change), t_(change.t), record_(std::move(record)) {}

  Status run() {
    if (change_.head.state != BranchState::deleting) {
      return {Errc::corrupt, "a branch whose record says that it is being deleted is in use"};
    }
    SL_TRY(bury_chunks());
    if (removed_ == 0) SL_TRY(bury_reservations());
    if (removed_ == 0 && SL_TRY(has_dead())) {
      waiting_ = true;  // The keeper removes their blocks first.
      return {};
    }
    if (removed_ == 0) SL_TRY(drop_inodes());
    if (removed_ == 0) SL_TRY(drop_plain());
    if (removed_ == 0) drop_itself();
    return {};
  }
  std::size_t removed() const { return removed_; }
  bool waiting() const { return waiting_; }
  bool finished() const { return finished_; }

 private:
  KeyRange range_of(Table table) const {
    return table_range(Space::branch, change_.branch(), table);
  }

  Status bury_chunks() {
    const KeyRange range = range_of(Table::slices);
    for (const kv::Row& row : SL_TRY(t_.scan({range.first, range.last, kChunkPage}))) {
      const SlicesKey key = SL_TRY(parse_slices_key(row.key));
      const SlicesRow slices = SL_TRY(SlicesRow::decode(row.value));
      for (const Entry& entry : references_of(slices.entries)) {
        put_dead(change_, key.inode, key.chunk, kAtDeletion, entry);
      }
      t_.expect(row.key, row.version);
      t_.del(row.key);
      ++removed_;
    }
    return {};
  }

  Status bury_reservations() {
    const KeyRange range = range_of(Table::reserved);
    for (const kv::Row& row : SL_TRY(t_.scan({range.first, range.last, kReservedPage}))) {
      SL_TRY(bury_reserved(change_, row));
      ++removed_;
    }
    return {};
  }

  Result<bool> has_dead() {
    const KeyRange range = range_of(Table::dead);
    const std::vector<kv::Row> rows = SL_TRY(t_.scan({range.first, range.last, 1}));
    return !rows.empty();
  }

  Status drop_inodes() {
    const KeyRange range = range_of(Table::inode);
    for (const kv::Row& row : SL_TRY(t_.scan({range.first, range.last, kRowPage}))) {
      const InodeRow inode = SL_TRY(InodeRow::decode(row.value));
      if (inode.is_directory()) clear_directory(change_, InodeId{KeyReader(row.key).u64()}, inode);
      t_.del(row.key);
      ++removed_;
    }
    return {};
  }

  Status drop_plain() {
    for (const Table table : kPlainTables) {
      removed_ += SL_TRY(delete_rows(t_, range_of(table), kRowPage));
      if (removed_ > 0) return {};
    }
    return {};
  }

  void drop_itself() {
    const BranchId branch = change_.branch();
    for (const Table table : {Table::slices, Table::reserved, Table::dead, Table::inode}) {
      const KeyRange range = range_of(table);
      t_.expect_empty(range.first, range.last);
    }
    for (const What what : {What::bytes, What::inodes, What::held, What::trash_bytes,
                            What::trash_inodes, What::escrow_all}) {
      t_.clear(accumulator_key(branch, InodeId{}, what));
    }
    t_.clear(image_pins_key(branch));
    t_.del(id_pool_key(Pool::inode, branch));
    t_.del(view_key(change_.head.view));
    t_.del(head_key(branch));
    t_.del(record_);
    finished_ = true;
  }

  /// No file has this version: references that died before are others.
  static constexpr std::uint64_t kAtDeletion = UINT64_MAX;

  Change& change_;
  kv::Transaction& t_;
  const std::string record_;
  std::size_t removed_ = 0;
  bool waiting_ = false;
  bool finished_ = false;
};

Status drop_step(Context& context, const Doomed& doomed, pb::HousekeepingReply* reply) {
  for (int i = 0; i < kTransactions; ++i) {
    std::size_t removed = 0;
    bool over = true;  // Also when the branch is gone already.
    if (const Status done = change_inside(context, doomed.branch,
                                          [&](Change& change) -> Status {
                                            Dropper dropper(change, doomed.record);
                                            SL_TRY(dropper.run());
                                            removed = dropper.removed();
                                            over = dropper.waiting() || dropper.finished();
                                            return {};
                                          });
        !done.ok())
      return done;
    reply->set_removed_rows(reply->removed_rows() + removed);
    if (over) return {};
  }
  reply->set_more(true);
  return {};
}

}  // namespace

Status drop_branches(Context& context, pb::HousekeepingReply* reply) {
  std::vector<Doomed> doomed;
  if (const Status done = context.read([&](kv::Transaction& t) -> Status {
        doomed = SL_TRY(find_doomed(t));
        return {};
      });
      !done.ok())
    return done;
  Status first;
  for (const Doomed& one : doomed) {
    Status dropped = drop_step(context, one, reply);
    if (first.ok()) first = std::move(dropped);
  }
  return first;
}

}  // namespace starlane::meta
