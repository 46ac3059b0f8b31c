// Random operations on a volume and on a model in memory: the whole trees are compared, with link
// counts, contents, exact usage and times that never go back; with injected conflicts and lost
// answers, and over RocksDB.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "common/bytes.h"
#include "common/rng.h"
#include "kv/mem/mem_engine.h"
#include "kv/rocksdb/rocksdb_engine.h"
#include "meta/contents.h"
#include "meta/nodes.h"
#include "meta/ops/test_volume.h"
#include "meta/truncate.h"

namespace starlane::meta {
namespace {

constexpr std::uint32_t kSpan = 64;  // modelled bytes on both sides of the chunks' border
constexpr std::uint64_t kStart = kChunkSize - kSpan / 2;  // where they begin in the file

struct ModelNode {
  bool directory = false;
  int links = 0;
  std::uint64_t parent = 0;
  std::map<std::string, std::uint64_t> entries;
  std::vector<std::uint64_t> bytes = std::vector<std::uint64_t>(kSpan);
  std::vector<bool> covered = std::vector<bool>(kSpan);
  std::uint64_t length = 0;
  std::int64_t changed = 0;  // ctime as last seen
};

/// What POSIX says of a tree, in the plainest way; keyed by the numbers that the volume gave.
class Model {
 public:
  Model() { nodes_[1] = root(); }

  std::map<std::uint64_t, ModelNode>& nodes() { return nodes_; }
  ModelNode& at(std::uint64_t inode) { return nodes_.at(inode); }
  std::uint64_t find(std::uint64_t parent, const std::string& name) {
    const auto& entries = at(parent).entries;
    const auto found = entries.find(name);
    return found == entries.end() ? 0 : found->second;
  }
  bool below(std::uint64_t inode, std::uint64_t of) {
    for (;; inode = at(inode).parent) {
      if (inode == of) return true;
      if (inode == 1) return false;
    }
  }
  void enter(std::uint64_t parent, const std::string& name, std::uint64_t inode) {
    at(parent).entries[name] = inode;
    at(inode).links += 1;
    if (at(inode).directory) at(inode).parent = parent;
  }
  void leave(std::uint64_t parent, const std::string& name) {
    const std::uint64_t inode = find(parent, name);
    at(parent).entries.erase(name);
    if (--at(inode).links == 0 && at(inode).directory) nodes_.erase(inode);
  }
  Errc can_rename(std::uint64_t parent, const std::string& name, std::uint64_t to,
                  const std::string& new_name, std::uint32_t flags) {
    const std::uint64_t from = find(parent, name);
    const std::uint64_t over = find(to, new_name);
    if (from == 0) return Errc::not_found;
    if (over != 0 && flags == 1) return Errc::exists;
    if (over == 0 && flags == 2) return Errc::not_found;
    if (over == from) return Errc::ok;
    if (flags == 2) {
      const bool into = at(from).directory && parent != to && below(to, from);
      return into || (at(over).directory && parent != to && below(parent, over)) ? Errc::invalid
                                                                                 : Errc::ok;
    }
    if (over != 0) {
      if (at(from).directory != at(over).directory) {
        return at(from).directory ? Errc::not_directory : Errc::is_directory;
      }
      if (at(over).directory && !at(over).entries.empty()) return Errc::not_empty;
    }
    return at(from).directory && below(to, from) ? Errc::invalid : Errc::ok;
  }

 private:
  static ModelNode root() {
    ModelNode node;
    node.directory = true;
    node.links = 1;
    node.parent = 1;
    return node;
  }
  std::map<std::uint64_t, ModelNode> nodes_;
};

class Player {
 public:
  /// alone: no other session has the branch attached.
  Player(kv::Engine& engine, std::uint64_t seed, bool repeats, bool alone)
      : volume_(engine, BranchId{7}, small()), rng_(seed), repeats_(repeats) {
    make_branch(engine, BranchId{7});
    let_in(engine, BranchId{7}, SessionId{5}, 1);
    edit_head(engine, BranchId{7}, [alone](HeadRow& head) {
      head.attachments = alone ? 1 : 2;
      head.only_session = SessionId{alone ? 5ul : 0ul};
    });
    volume_.on.set_session(5);
    volume_.on.set_attachment_epoch(1);
  }

  void play(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
      volume_.clock().advance(Nanoseconds(rng_.below(1000)));
      step();
      if (rng_.one_in(50)) compare();
    }
    if (!testing::Test::HasFailure()) compare();
  }
  /// Unlinks everything and frees it: nothing may be left but dead references.
  void finish();

 private:
  static Options small() {
    Options options;
    options.chunks_a_step = 2;
    return options;
  }
  void step();
  void make();
  void make_link();
  void remove();
  void rename();
  void write();
  void truncate();
  void zero();
  void copy();
  void compare();
  void compare_node(std::uint64_t inode, const ModelNode& node);
  void compare_references();
  void free_unlinked();

  /// Runs a call until its fate is known, as a client does: the same request number, again.
  template <typename Call>
  auto settle(const Call& call) {
    volume_.on.set_request(++request_);
    for (;;) {
      auto result = call();
      const bool unknown = result.code() == Errc::unavailable || result.code() == Errc::conflict;
      if (!unknown && (!repeats_ || !result.ok() || !rng_.one_in(10))) return result;
    }
  }
  std::uint64_t any_directory() {
    return any([](const ModelNode& node) { return node.directory; });
  }
  std::uint64_t any_file() {
    return any([](const ModelNode& node) { return !node.directory; });
  }
  template <typename Filter>
  std::uint64_t any(const Filter& filter) {
    std::vector<std::uint64_t> fit;
    for (const auto& [inode, node] : model_.nodes()) {
      if (filter(node)) fit.push_back(inode);
    }
    return fit.empty() ? 0 : fit[rng_.below(fit.size())];
  }
  std::string any_name() { return std::string(1, static_cast<char>('a' + rng_.below(6))); }

  TestVolume volume_;
  Model model_;
  Rng rng_;
  const bool repeats_;
  std::uint64_t request_ = 0;
};

void Player::step() {
  switch (rng_.below(16)) {
    case 0:
    case 1:
    case 2:
      return make();
    case 3:
      return make_link();
    case 4:
    case 5:
      return remove();
    case 6:
    case 7:
    case 8:
      return rename();
    case 9:
    case 10:
    case 11:
      return write();
    case 12:
      return truncate();
    case 13:
      return zero();
    case 14:
      return free_unlinked();
    default:
      return copy();
  }
}

void Player::make() {
  const std::uint64_t parent = any_directory();
  const std::string name = any_name();
  const bool directory = rng_.one_in(2);
  const auto made = settle(
      [&] { return directory ? volume_.mkdir(parent, name) : volume_.create(parent, name); });
  ASSERT_EQ(made.code(), model_.find(parent, name) ? Errc::exists : Errc::ok);
  if (!made.ok()) return;
  ASSERT_FALSE(model_.nodes().contains(made->inode()));
  model_.nodes()[made->inode()].directory = directory;
  model_.enter(parent, name, made->inode());
}

void Player::make_link() {
  const std::uint64_t parent = any_directory();
  const std::string name = any_name();
  const std::uint64_t file = any_file();
  if (file == 0) return;
  const auto made = settle([&] { return volume_.link(file, parent, name); });
  const Errc wanted = model_.find(parent, name) ? Errc::exists
                      : model_.at(file).links   ? Errc::ok
                                                : Errc::not_found;
  ASSERT_EQ(made.code(), wanted);
  if (made.ok()) model_.enter(parent, name, file);
}

void Player::remove() {
  const std::uint64_t parent = any_directory();
  const std::string name = any_name();
  const bool directory = rng_.one_in(2);
  const std::uint64_t inode = model_.find(parent, name);
  Errc wanted = inode ? Errc::ok : Errc::not_found;
  if (inode && model_.at(inode).directory != directory)
    wanted = directory ? Errc::not_directory : Errc::is_directory;
  if (wanted == Errc::ok && directory && !model_.at(inode).entries.empty())
    wanted = Errc::not_empty;
  const auto gone = settle(
      [&] { return directory ? volume_.rmdir(parent, name) : volume_.unlink(parent, name); });
  ASSERT_EQ(gone.code(), wanted);
  if (!gone.ok()) return;
  ASSERT_EQ(gone->inode(), inode);
  model_.leave(parent, name);
  ASSERT_EQ(gone->attributes().nlink(),
            directory ? 0u : static_cast<unsigned>(model_.at(inode).links));
}

void Player::rename() {
  const std::uint64_t parent = any_directory();
  const std::uint64_t to = any_directory();
  const std::string name = any_name();
  const std::string new_name = any_name();
  const auto flags = static_cast<std::uint32_t>(rng_.below(6) < 4 ? 0 : 1 + rng_.below(2));
  const Errc wanted = model_.can_rename(parent, name, to, new_name, flags);
  const auto done = settle([&] { return volume_.rename(parent, name, to, new_name, flags); });
  ASSERT_EQ(done.code(), wanted) << parent << "/" << name << " to " << to << "/" << new_name
                                 << " flags " << flags;
  if (!done.ok()) return;
  const std::uint64_t from = model_.find(parent, name);
  const std::uint64_t over = model_.find(to, new_name);
  if (over == from) return;
  if (flags == 2) {
    model_.at(parent).entries[name] = over;
    model_.at(to).entries[new_name] = from;
    if (model_.at(over).directory) model_.at(over).parent = parent;
  } else {
    if (over) model_.leave(to, new_name);
    model_.at(parent).entries.erase(name);
    model_.at(to).entries[new_name] = from;
  }
  if (model_.at(from).directory) model_.at(from).parent = to;
}

void Player::write() {
  const std::uint64_t file = any_file();
  if (file == 0) return;
  const auto first = static_cast<std::uint32_t>(rng_.below(kSpan));
  const auto last = first + 1 + static_cast<std::uint32_t>(rng_.below(kSpan - first));
  volume_.on.set_request(0);
  auto reserved = volume_.reserve(2);
  while (!reserved.ok()) reserved = volume_.reserve(2);
  pb::CommitRequest request;
  request.set_inode(file);
  ModelNode& node = model_.at(file);
  std::uint64_t slice = reserved->first();
  for (std::uint64_t at = kStart + first; at < kStart + last; ++slice) {
    const std::uint64_t end = std::min(kStart + last, round_down(at, kChunkSize) + kChunkSize);
    pb::NewSlice* added = request.add_slices();
    added->set_chunk(static_cast<std::uint32_t>(at / kChunkSize));
    added->set_batch(reserved->batch());
    added->mutable_entry()->set_slice(slice);
    added->mutable_entry()->set_position(static_cast<std::uint32_t>(at % kChunkSize));
    added->mutable_entry()->set_length(static_cast<std::uint32_t>(end - at));
    added->mutable_entry()->set_slice_length(added->entry().length());
    for (std::uint64_t begin = at; at < end; ++at) {
      node.bytes[at - kStart] = (slice << 32) + at - begin;
      node.covered[at - kStart] = true;
    }
  }
  node.length = std::max(node.length, kStart + last);
  const bool known = rng_.one_in(2);  // without a number the bits alone must do
  const auto done = known ? settle([&] { return volume_.commit(request); }) : [&] {
    volume_.on.set_request(0);
    auto result = volume_.commit(request);
    while (result.code() == Errc::unavailable || result.code() == Errc::conflict)
      result = volume_.commit(request);
    return result;
  }();
  ASSERT_TRUE(done.ok()) << done.status().to_string();
}

void Player::truncate() {
  const std::uint64_t file = any_file();
  if (file == 0) return;
  const std::uint64_t length = rng_.one_in(3) ? 0 : kStart + rng_.below(kSpan);
  const auto done = settle([&] { return volume_.truncate(file, length); });
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  ModelNode& node = model_.at(file);
  node.length = length;
  for (std::uint64_t at = length > kStart ? length - kStart : 0; at < kSpan; ++at) {
    node.bytes[at] = 0;
    node.covered[at] = false;
  }
}

void Player::zero() {
  const std::uint64_t file = any_file();
  if (file == 0) return;
  const std::uint64_t first = rng_.below(kSpan);
  const std::uint64_t last = first + 1 + rng_.below(kSpan - first);
  const auto done =
      settle([&] { return volume_.fallocate(file, 3, kStart + first, last - first); });
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  for (std::uint64_t at = first; at < last; ++at) {
    model_.at(file).bytes[at] = 0;
    model_.at(file).covered[at] = false;
  }
}

void Player::copy() {
  const std::uint64_t source = any_file();
  const std::uint64_t file = any_file();
  if (file == 0) return;
  const std::uint64_t from = rng_.below(kSpan);
  const std::uint64_t to = rng_.below(kSpan);
  std::uint64_t length = 1 + rng_.below(kSpan - std::max(from, to));
  const ModelNode old = model_.at(source);
  const std::uint64_t there = old.length > kStart + from ? old.length - kStart - from : 0;
  const auto done =
      settle([&] { return volume_.copy(source, kStart + from, file, kStart + to, length); });
  length = std::min(length, there);
  const bool overlap = source == file && (from > to ? from - to : to - from) < length;
  ASSERT_EQ(done.code(), overlap ? Errc::invalid : Errc::ok) << done.status().to_string();
  if (!done.ok()) return;
  ASSERT_EQ(done->copied(), length);
  ModelNode& node = model_.at(file);
  for (std::uint64_t i = 0; i < length; ++i) {
    node.bytes[to + i] = old.bytes[from + i];
    node.covered[to + i] = old.covered[from + i];
  }
  if (length > 0) node.length = std::max(node.length, kStart + to + length);
}

void Player::free_unlinked() {
  for (const kv::Row& row : volume_.rows(Table::unlinked)) {
    for (;;) {
      const auto done = free_unlinked_step(volume_.context(), row.key);
      if (done.ok() && *done) break;
    }
    model_.nodes().erase(parse_unlinked_key(row.key)->inode.value);
  }
}

std::int64_t time_ns(const pb::Time& time) {
  return time.seconds() * 1'000'000'000 + time.nanoseconds();
}

void Player::compare_node(std::uint64_t inode, const ModelNode& node) {
  const pb::Attributes real = volume_.attributes(inode).value();
  EXPECT_GE(time_ns(real.ctime()), node.changed) << "times never go back";
  EXPECT_LE(time_ns(real.mtime()), static_cast<std::int64_t>(to_ns(volume_.clock().wall())));
  model_.at(inode).changed = time_ns(real.ctime());
  if (!node.directory) {
    EXPECT_EQ(real.nlink(), static_cast<unsigned>(node.links));
    EXPECT_EQ(real.length(), node.length);
    EXPECT_EQ(real.bytes(), static_cast<std::uint64_t>(
                                std::count(node.covered.begin(), node.covered.end(), true)));
    std::vector<std::uint64_t> bytes = volume_.read(inode, kStart, kSpan / 2);
    const std::vector<std::uint64_t> rest = volume_.read(inode, kChunkSize, kSpan / 2);
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    EXPECT_EQ(bytes, node.bytes) << inode;
    return;
  }
  unsigned directories = 0;
  std::vector<std::string> names;
  for (const auto& [name, child] : node.entries) {
    names.push_back(name);
    EXPECT_EQ(volume_.lookup(inode, name)->inode(), child);
    directories += model_.at(child).directory;
  }
  EXPECT_EQ(volume_.list(inode).value(), names);
  EXPECT_EQ(real.nlink(), 2 + directories);
  EXPECT_EQ(real.entries(), names.size());
  EXPECT_EQ(real.parent(), node.parent);
}

/// The rule of references, from the rows alone: live and dead references of a slice are K + 1.
void Player::compare_references() {
  std::map<std::uint64_t, std::int64_t> references;
  std::int64_t held = 0;
  for (const kv::Row& row : volume_.rows(Table::slices)) {
    for (const Entry& entry : references_of(SlicesRow::decode(row.value)->entries))
      ++references[entry.slice.value];
  }
  for (const kv::Row& row : volume_.rows(Table::dead)) {
    ++references[parse_dead_key(row.key)->slice.value];
    held += DeadRow::decode(row.value)->slice_length;
  }
  for (const auto& [slice, count] : references)
    EXPECT_EQ(volume_.count_of(slice), count - 1) << slice;
  EXPECT_EQ(volume_.total(What::held), held);
  for (const kv::Row& row : volume_.rows(Table::reserved)) {
    KeyReader reader(row.key);
    reader.u64();
    const std::uint64_t batch = reader.u64();
    const ReservedRow reserved = ReservedRow::decode(row.value).value();
    for (std::uint64_t i = 0; i < reserved.count; ++i) {
      EXPECT_EQ(references.contains(batch + i), (reserved.committed >> i & 1) != 0)
          << "a leaked or stolen slice";
    }
  }
}

void Player::compare() {
  std::int64_t inodes = 0;
  std::int64_t bytes = 0;
  std::size_t further = 0;
  for (const auto& [inode, node] : std::map(model_.nodes())) {
    compare_node(inode, node);
    if (node.links == 0) continue;
    ++inodes;
    bytes += std::count(node.covered.begin(), node.covered.end(), true);
    if (!node.directory) further += static_cast<std::size_t>(node.links - 1);
  }
  EXPECT_EQ(volume_.total(What::inodes), inodes);
  EXPECT_EQ(volume_.total(What::bytes), bytes);
  EXPECT_EQ(volume_.rows(Table::inode).size(), model_.nodes().size());
  EXPECT_EQ(volume_.rows(Table::name).size(), further);
  compare_references();
}

void Player::finish() {
repeat:
  for (const auto& [inode, node] : std::map(model_.nodes())) {
    if (!node.directory) continue;
    for (const auto& [name, child] : node.entries) {
      const bool directory = model_.at(child).directory;
      if (directory && !model_.at(child).entries.empty()) continue;
      const auto gone = settle([&, inode = inode, &name = name] {
        return directory ? volume_.rmdir(inode, name) : volume_.unlink(inode, name);
      });
      ASSERT_TRUE(gone.ok()) << gone.status().to_string();
      model_.leave(inode, name);
      goto repeat;
    }
  }
  free_unlinked();
  compare();
  EXPECT_TRUE(volume_.rows(Table::slices).empty());
  EXPECT_TRUE(volume_.rows(Table::entry).empty());
  EXPECT_EQ(volume_.rows(Table::inode).size(), 1u);
  EXPECT_EQ(volume_.total(What::bytes), 0);
}

void play(kv::Engine& engine, std::uint64_t seed, int steps, bool repeats) {
  Player player(engine, seed, repeats, seed % 2 == 0);
  player.play(steps);
  if (!testing::Test::HasFailure()) player.finish();
}

TEST(TreeModel, Memory) {
  for (int round = 0; round < 6 && !testing::Test::HasFailure(); ++round) {
    const std::uint64_t seed = random_seed();
    SCOPED_TRACE("seed " + std::to_string(seed));
    kv::mem::MemEngine engine;
    play(engine, seed, 1500, false);
  }
}

TEST(TreeModel, ConflictsAndLostAnswers) {
  for (int round = 0; round < 4 && !testing::Test::HasFailure(); ++round) {
    const std::uint64_t seed = random_seed();
    SCOPED_TRACE("seed " + std::to_string(seed));
    kv::mem::MemEngine engine;
    Player player(engine, seed, true, round % 2 == 0);
    kv::mem::Faults faults;
    faults.seed = seed;
    faults.conflict_one_in = 7;
    faults.lost_answer_one_in = 9;
    engine.set_faults(faults);
    player.play(800);
    if (!testing::Test::HasFailure()) player.finish();
  }
}

TEST(TreeModel, Rocksdb) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::string directory = testing::TempDir() + "starlane_meta_model_" + std::to_string(seed);
  kv::RocksdbOptions options;
  options.directory = directory;
  {
    auto engine = kv::open_rocksdb(options);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    play(**engine, seed, 1000, true);
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace starlane::meta
