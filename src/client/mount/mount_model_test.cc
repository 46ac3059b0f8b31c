// Random work on two hosts in turn against a model, with calls and answers lost on the way:
// everything that was answered is true on both hosts, and nothing was done twice.
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <variant>

#include "client/mount/host_fixture.h"

namespace starlane::client::testing {
namespace {

struct ModelFile {
  std::string bytes;
  std::uint64_t links = 1;
};
struct ModelDirectory;
using ModelNode = std::variant<std::shared_ptr<ModelFile>, std::shared_ptr<ModelDirectory>>;
struct ModelDirectory {
  std::map<std::string, ModelNode> names;
};

std::shared_ptr<ModelFile> file_of(const ModelNode& node) {
  const auto* file = std::get_if<std::shared_ptr<ModelFile>>(&node);
  return file == nullptr ? nullptr : *file;
}
std::shared_ptr<ModelDirectory> directory_of(const ModelNode& node) {
  const auto* directory = std::get_if<std::shared_ptr<ModelDirectory>>(&node);
  return directory == nullptr ? nullptr : *directory;
}

/// Two directories deep, few names: collisions are the point.
class MountModel {
 public:
  MountModel(Host& a, Host& b, Cluster& cluster, std::uint64_t seed)
      : hosts_{&a, &b}, cluster_(cluster), rng_(seed) {
    root_ = std::make_shared<ModelDirectory>();
  }

  void step() {
    host_ = hosts_[rng_.below(2)];
    // Names and attributes that another host changed are seen after a second; contents by the next
    // open at once.
    if (host_ != last_) cluster_.clock.advance(std::chrono::milliseconds(1100));
    last_ = host_;
    switch (rng_.below(10)) {
      case 0:
        return make_file();
      case 1:
        return make_directory();
      case 2:
        return write();
      case 3:
        return read();
      case 4:
        return remove();
      case 5:
        return move();
      case 6:
        return link();
      case 7:
        return truncate();
      case 8:
        return zero();
      default:
        return list();
    }
  }

  void check_all() {
    cluster_.clock.advance(std::chrono::milliseconds(1100));
    for (Host* host : hosts_) {
      host_ = host;
      check_directory(kRoot, *root_);
    }
  }

 private:
  struct Place {
    std::string path;  // of the name
    ModelDirectory* directory = nullptr;
    std::string name;
    ModelNode* node = nullptr;  // null: there is no such name
  };

  /// A name in the root or in a directory that the model has.
  Place place() {
    Place found{kRoot, root_.get(), {}, nullptr};
    const std::string outer(1, static_cast<char>('a' + rng_.below(4)));
    if (rng_.one_in(2)) {
      const auto at = root_->names.find(outer);
      if (at != root_->names.end() && directory_of(at->second)) {
        found.path += "/" + outer;
        found.directory = directory_of(at->second).get();
      }
    }
    found.name = std::string(1, static_cast<char>('a' + rng_.below(4)));
    found.path += "/" + found.name;
    const auto at = found.directory->names.find(found.name);
    if (at != found.directory->names.end()) found.node = &at->second;
    return found;
  }

  void make_file() {
    const Place at = place();
    const bool exclusive = rng_.one_in(2);
    const auto handle = host_->create(at.path, O_RDWR | O_CREAT | (exclusive ? O_EXCL : 0));
    if (at.node != nullptr && (exclusive || directory_of(*at.node))) {
      EXPECT_EQ(handle.code(), Errc::exists) << at.path;
      return;
    }
    ASSERT_TRUE(handle.ok()) << at.path << handle.status().to_string();
    EXPECT_TRUE(host_->close(*handle).ok());
    if (at.node == nullptr) at.directory->names[at.name] = std::make_shared<ModelFile>();
  }

  void make_directory() {
    const Place at = place();
    if (at.directory != root_.get()) return;
    const Status made = host_->mkdir(at.path);
    EXPECT_EQ(made.code(), at.node != nullptr ? Errc::exists : Errc::ok) << at.path;
    if (at.node == nullptr) at.directory->names[at.name] = std::make_shared<ModelDirectory>();
  }

  void write() {
    const Place at = place();
    const auto file = at.node == nullptr ? nullptr : file_of(*at.node);
    if (!file) return;
    const auto handle = host_->open(at.path, O_RDWR);
    ASSERT_TRUE(handle.ok()) << at.path << handle.status().to_string();
    for (std::uint64_t i = rng_.below(3) + 1; i > 0; --i) {
      const std::string bytes(rng_.below(9000) + 1, static_cast<char>('A' + rng_.below(26)));
      const bool append = rng_.one_in(3);
      const std::uint64_t offset = append ? file->bytes.size() : rng_.below(20'000);
      ASSERT_TRUE(host_->pwrite(*handle, offset, bytes, {.append = append}).ok());
      if (file->bytes.size() < offset + bytes.size()) file->bytes.resize(offset + bytes.size());
      file->bytes.replace(offset, bytes.size(), bytes);
    }
    EXPECT_EQ(host_->stat(at.path)->length, file->bytes.size());
    EXPECT_TRUE(host_->close(*handle).ok());
  }

  void read() {
    const Place at = place();
    check_name(at.path, at.node);
  }

  void remove() {
    const Place at = place();
    const bool directory = at.node != nullptr && directory_of(*at.node);
    if (rng_.one_in(2)) {
      const Errc expected = at.node == nullptr                       ? Errc::not_found
                            : !directory                             ? Errc::not_directory
                            : !directory_of(*at.node)->names.empty() ? Errc::not_empty
                                                                     : Errc::ok;
      EXPECT_EQ(host_->rmdir(at.path).code(), expected) << at.path;
      if (expected == Errc::ok) at.directory->names.erase(at.name);
      return;
    }
    const Errc expected = at.node == nullptr ? Errc::not_found
                          : directory        ? Errc::is_directory
                                             : Errc::ok;
    EXPECT_EQ(host_->unlink(at.path).code(), expected) << at.path;
    if (expected != Errc::ok) return;
    --file_of(*at.node)->links;
    at.directory->names.erase(at.name);
  }

  void move() {
    const Place from = place();
    const Place to = place();
    const bool exchange = rng_.one_in(4);
    if (from.node == nullptr || from.path == to.path) return;
    const bool from_directory = directory_of(*from.node) != nullptr;
    if (from_directory && to.directory != root_.get()) return;  // stays two deep
    if (exchange && to.node != nullptr && directory_of(*to.node) && from.directory != root_.get())
      return;
    const Status moved = host_->rename(from.path, to.path, exchange ? 2 : 0);
    Errc expected = Errc::ok;
    if (exchange && to.node == nullptr) expected = Errc::not_found;
    if (!exchange && to.node != nullptr) {
      const bool to_directory = directory_of(*to.node) != nullptr;
      if (from_directory && !to_directory) expected = Errc::not_directory;
      if (!from_directory && to_directory) expected = Errc::is_directory;
      if (from_directory && to_directory && !directory_of(*to.node)->names.empty())
        expected = Errc::not_empty;
      if (from.directory != root_.get() && to_directory &&
          directory_of(*to.node).get() == from.directory)
        return;
    }
    if (to.node != nullptr && directory_of(*to.node).get() == from.directory && exchange) return;
    EXPECT_EQ(moved.code(), expected) << from.path << " -> " << to.path << moved.to_string();
    if (!moved.ok()) return;
    if (to.node != nullptr && file_of(*from.node) && file_of(*from.node) == file_of(*to.node))
      return;  // one file
    if (exchange) {
      std::swap(*from.node, *to.node);
      return;
    }
    if (to.node != nullptr && file_of(*to.node)) --file_of(*to.node)->links;
    const ModelNode node = *from.node;
    from.directory->names.erase(from.name);
    to.directory->names[to.name] = node;
  }

  void link() {
    const Place from = place();
    const Place to = place();
    const auto file = from.node == nullptr ? nullptr : file_of(*from.node);
    if (!file) return;
    EXPECT_EQ(host_->link(from.path, to.path).code(), to.node != nullptr ? Errc::exists : Errc::ok);
    if (to.node != nullptr) return;
    ++file->links;
    to.directory->names[to.name] = file;
  }

  void truncate() {
    const Place at = place();
    const auto file = at.node == nullptr ? nullptr : file_of(*at.node);
    if (!file) return;
    const std::uint64_t length = rng_.below(25'000);
    ASSERT_TRUE(host_->truncate(at.path, length).ok());
    file->bytes.resize(length);
    EXPECT_EQ(host_->stat(at.path)->length, length);
  }

  /// Between writes that are not committed when it comes, and looked for as holes.
  void zero() {
    const Place at = place();
    const auto file = at.node == nullptr ? nullptr : file_of(*at.node);
    if (!file) return;
    const auto handle = host_->open(at.path, O_RDWR);
    ASSERT_TRUE(handle.ok()) << at.path << handle.status().to_string();
    const std::uint64_t offset = rng_.below(20'000), length = 1 + rng_.below(9000);
    const std::string bytes(length, 'z');
    ASSERT_TRUE(host_->pwrite(*handle, offset, bytes).ok());
    if (file->bytes.size() < offset + length) file->bytes.resize(offset + length);
    file->bytes.replace(offset, length, bytes);
    const bool punch = rng_.one_in(2);
    const std::uint64_t from = offset + rng_.below(length), end = from + 1 + rng_.below(5000);
    const int mode = punch ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : FALLOC_FL_ZERO_RANGE;
    ASSERT_TRUE(
        host_->vfs()
            .fallocate(host_->caller(), *handle, static_cast<std::uint32_t>(mode), from, end - from)
            .ok());
    if (!punch && file->bytes.size() < end) file->bytes.resize(end);
    for (std::uint64_t i = from; i < std::min<std::uint64_t>(end, file->bytes.size()); ++i)
      file->bytes[i] = '\0';
    const auto hole = host_->vfs().seek(host_->caller(), *handle, offset, SEEK_HOLE);
    ASSERT_TRUE(hole.ok()) << hole.status().to_string();
    EXPECT_EQ(*hole, from);
    EXPECT_TRUE(host_->close(*handle).ok());
    EXPECT_TRUE(*host_->read_file(at.path) == file->bytes) << at.path;
  }

  void list() { check_names(kRoot, *root_); }

  void check_names(const std::string& path, const ModelDirectory& directory) {
    const auto listed = host_->list(path, 3, rng_.one_in(2));
    ASSERT_TRUE(listed.ok());
    std::set<std::string> names, expected{".", ".."};
    for (const ListedEntry& entry : *listed)
      EXPECT_TRUE(names.insert(entry.name).second) << "twice: " << entry.name;
    for (const auto& [name, node] : directory.names) expected.insert(name);
    EXPECT_EQ(names, expected) << path;
  }

  void check_name(const std::string& path, const ModelNode* node) {
    const auto stat = host_->stat(path);
    if (node == nullptr) {
      EXPECT_EQ(stat.code(), Errc::not_found) << path;
      return;
    }
    ASSERT_TRUE(stat.ok()) << path << stat.status().to_string();
    const auto file = file_of(*node);
    EXPECT_EQ(S_ISDIR(stat->mode), file == nullptr) << path;
    if (!file) return;
    EXPECT_EQ(stat->nlink, file->links) << path;
    EXPECT_EQ(stat->length, file->bytes.size()) << path;
    const auto bytes = host_->read_file(path);
    ASSERT_TRUE(bytes.ok()) << path << bytes.status().to_string();
    EXPECT_TRUE(*bytes == file->bytes) << path;
  }

  void check_directory(const std::string& path, const ModelDirectory& directory) {
    check_names(path, directory);
    for (const auto& [name, node] : directory.names) {
      check_name(path + "/" + name, &node);
      if (const auto inner = directory_of(node)) check_directory(path + "/" + name, *inner);
    }
  }

  static constexpr const char* kRoot = "/volumes/v";
  Host* const hosts_[2];
  Cluster& cluster_;
  Rng rng_;
  Host* host_ = nullptr;
  Host* last_ = nullptr;
  std::shared_ptr<ModelDirectory> root_;
};

void run(std::uint64_t seed, int steps, std::uint64_t lose_one_in) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Cluster cluster(Milliseconds(100'000'000));  // time passes in steps here: nobody is too silent
  cluster.make_volume("v");
  Host a(cluster, "a");
  Host b(cluster, "b");
  MountModel model(a, b, cluster, seed);
  a.meta.lose(seed + 1, lose_one_in);
  b.meta.lose(seed + 2, lose_one_in);
  for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    model.step();
  }
  if (!::testing::Test::HasFailure()) model.check_all();
}

std::uint64_t seed_of_run() {
  const char* given = std::getenv("SL_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : random_seed();
  std::printf("seed %llu (SL_SEED repeats it)\n", static_cast<unsigned long long>(seed));
  return seed;
}

TEST(MountModel, TwoHostsInTurn) {
  const std::uint64_t seed = seed_of_run();
  for (std::uint64_t round = 0; round < 3; ++round) run(seed + round, 400, 0);
}

TEST(MountModel, TwoHostsInTurnOverABadNetwork) {
  const std::uint64_t seed = seed_of_run();
  for (std::uint64_t round = 0; round < 2; ++round) run(seed + round, 300, 6);
}

}  // namespace
}  // namespace starlane::client::testing
