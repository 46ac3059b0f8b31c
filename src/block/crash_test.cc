// Power loss at every change of a device, failures, damage, a full device; and kill -9 of a process
// under load.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "block/fixture.h"
#include "common/mutex.h"

namespace starlane::block {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// What a caller knows: everything that was answered, and what was asked without an answer.
class Model {
 public:
  void put(const BlockId& id, std::size_t length, Safety safety, const Status& status) {
    MutexLock lock(m_);
    Block& block = blocks_[id];
    block.length = length;
    block.accepted |= status.ok();
    block.durable |= status.ok() && safety == Safety::durable;
  }
  /// Blocks that were accepted when a sync began.
  std::vector<BlockId> accepted() {
    MutexLock lock(m_);
    std::vector<BlockId> ids;
    for (const auto& [id, block] : blocks_) {
      if (block.accepted) ids.push_back(id);
    }
    return ids;
  }
  void synced(const std::vector<BlockId>& ids) {
    MutexLock lock(m_);
    for (const BlockId& id : ids) blocks_[id].durable = true;
  }
  void removed(SliceId slice, const Status& status) {
    MutexLock lock(m_);
    (status.ok() ? removed_ : maybe_removed_).insert(slice);
  }

  /// Compares a reopened store with what was promised. power_lost: what was only accepted may be
  /// gone.
  void check_against(Store& store, bool power_lost) {
    MutexLock lock(m_);
    std::set<BlockId> present;
    for (const auto& [id, block] : blocks_) {
      const Errc code = check(store, id, block.length).code();
      ASSERT_TRUE(code == Errc::ok || code == Errc::not_found)
          << "slice " << id.slice.value << " index " << id.index << ": " << name_of(code);
      if (removed_.contains(id.slice)) {
        ASSERT_EQ(code, Errc::not_found) << "slice " << id.slice.value << " came back";
      } else if (!maybe_removed_.contains(id.slice) &&
                 (block.durable || (block.accepted && !power_lost))) {
        ASSERT_EQ(code, Errc::ok) << "slice " << id.slice.value << " index " << id.index
                                  << (block.durable ? " durable" : " accepted");
      }
      if (code == Errc::ok) present.insert(id);
    }
    std::set<BlockId> listed;
    for (const BlockInfo& info : list_all(store)) listed.insert(info.block);
    ASSERT_EQ(listed, present);
    ASSERT_THAT(verify_all(store), IsEmpty());
    ASSERT_EQ(store.targets({}).value()[0].blocks, present.size());
    for (const SliceId slice : removed_) {
      ASSERT_EQ(block::put(store, {BranchId(7), slice, 77}, 10).code(), Errc::fenced);
    }
  }

  /// Callers who got no answer try again: then everything is there.
  void retry(Store& store) {
    MutexLock lock(m_);
    for (auto& [id, block] : blocks_) {
      if (removed_.contains(id.slice) || maybe_removed_.contains(id.slice)) continue;
      const Status status = block::put(store, id, block.length, Safety::durable);
      ASSERT_TRUE(status.ok()) << status.to_string();
      block.accepted = block.durable = true;
    }
  }

 private:
  struct Block {
    std::size_t length = 0;
    bool accepted = false, durable = false;
  };
  Mutex m_;
  std::map<BlockId, Block> blocks_ SL_GUARDED_BY(m_);
  std::set<SliceId> removed_ SL_GUARDED_BY(m_), maybe_removed_ SL_GUARDED_BY(m_);
};

std::size_t random_length(Rng& rng) {
  if (rng.one_in(2)) return 1 + rng.below(9000);
  return 1 + rng.below(rng.one_in(6) ? 1'500'000 : 150'000);
}

/// Random operations until `operations` are done or `stop` says so.
template <typename Stop>
void work(Store& store, Model& model, std::uint64_t seed, std::uint64_t first_slice, int operations,
          Stop stop) {
  Rng rng(seed);
  std::uint64_t slice = first_slice;
  std::uint32_t index = 0;
  for (int i = 0; i < operations && !stop(); ++i) {
    const std::uint64_t dice = rng.below(16);
    if (dice < 11) {
      if (rng.one_in(3)) {
        ++slice;
        index = 0;
      }
      const BlockId id = block_id(slice, index++);
      const std::size_t length = random_length(rng);
      const Safety safety = rng.one_in(4) ? Safety::durable : Safety::accepted;
      model.put(id, length, safety, put(store, id, length, safety));
    } else if (dice == 11) {
      const auto ids = model.accepted();
      if (store.sync({}, kTarget).ok()) model.synced(ids);
    } else if (dice < 14) {
      const SliceId victim(first_slice + rng.below(slice - first_slice + 1));
      model.removed(victim, store.remove_slice({}, kTarget, BranchId(7), victim));
      if (victim.value == slice) ++slice;
    } else {
      (void)store.list({}, kTarget, "", 1);  // writes the index
    }
  }
}

StoreOptions small_segments(StoreOptions options) {
  options.tuning.segments.segment_bytes = kMostRecord;
  options.tuning.segments.reserve_step = 256_KiB;
  return options;
}

void cut_and_compare(std::uint64_t seed, std::uint64_t cut, MemDevice::Crash how, bool& was_cut) {
  TempDirectory directory;
  MemDevice device({.seed = seed, .traits = {.alignment = seed % 2 ? kDiskPage : 1}});
  const auto options = [&] {
    return small_segments(options_for(device, directory.path() + "/index"));
  };
  Model model;
  device.cut_after(cut);
  {
    auto store = Store::open(options());
    if (store.ok()) work(**store, model, seed, 1, 60, [&] { return device.is_cut(); });
    was_cut = device.is_cut();
  }
  device.crash(how);
  {
    auto store = open_or_die(options());
    model.check_against(*store, true);
    if (testing::Test::HasFatalFailure()) return;
    model.retry(*store);
  }
  device.crash(how);
  model.check_against(*open_or_die(options()), true);
}

/// How long random tests go on: 1 unless STARLANE_TEST_ROUNDS says more.
int rounds() {
  const char* text = std::getenv("STARLANE_TEST_ROUNDS");
  return text ? std::max(1, std::atoi(text)) : 1;
}

class PowerLoss : public testing::TestWithParam<MemDevice::Crash> {};

TEST_P(PowerLoss, AtEveryChangeOfARun) {
  const std::uint64_t seed = random_seed();
  bool was_cut = true;
  // Every place takes a while: without time, every fourth, beginning anywhere.
  const std::uint64_t step = rounds() > 1 ? 1 : 4;
  for (std::uint64_t cut = 1 + seed % step; was_cut; cut += step) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " cut " + std::to_string(cut));
    cut_and_compare(seed, cut, GetParam(), was_cut);
    if (HasFatalFailure()) return;
    ASSERT_LT(cut, 1000u);
  }
}

TEST_P(PowerLoss, AtRandomPlacesOfManyRuns) {
  for (int i = 0; i < 12 * rounds(); ++i) {
    const std::uint64_t seed = random_seed();
    const std::uint64_t cut = 1 + seed % 120;
    SCOPED_TRACE("seed " + std::to_string(seed) + " cut " + std::to_string(cut));
    bool was_cut = false;
    cut_and_compare(seed, cut, GetParam(), was_cut);
    if (HasFatalFailure()) return;
  }
}

TEST_P(PowerLoss, UnderManyThreads) {
  for (int i = 0; i < 6 * rounds(); ++i) {
    const std::uint64_t seed = random_seed();
    SCOPED_TRACE("seed " + std::to_string(seed));
    TempDirectory directory;
    MemDevice device({.seed = seed, .traits = {.alignment = kDiskPage}});
    const auto options = [&] {
      auto made = small_segments(options_for(device, directory.path() + "/index"));
      made.tuning.index_interval = Milliseconds(3);
      return made;
    };
    Model model;
    device.cut_after(20 + seed % 300);
    {
      auto store = Store::open(options());
      ASSERT_TRUE(store.ok());
      std::vector<std::thread> threads;
      for (std::uint64_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          work(**store, model, seed + t, 1 + t * 1000, 60, [&] { return device.is_cut(); });
        });
      }
      for (auto& thread : threads) thread.join();
    }
    device.crash(GetParam());
    auto store = open_or_die(options());
    model.check_against(*store, true);
    if (HasFatalFailure()) return;
  }
}

/// What a killed process had written, and the next one acknowledged as synced, is there.
void kill_sync_and_cut(std::uint64_t seed, MemDevice::Crash how) {
  TempDirectory directory;
  MemDevice device({.seed = seed, .traits = {.alignment = seed % 2 ? kDiskPage : 1}});
  const auto options = [&] {
    return small_segments(options_for(device, directory.path() + "/index"));
  };
  Model model;
  for (std::uint64_t life = 0; life < 3; ++life) {
    auto store = open_or_die(options());
    model.check_against(*store, false);
    if (testing::Test::HasFatalFailure()) return;
    const auto ids = model.accepted();
    if (store->sync({}, kTarget).ok()) model.synced(ids);
    if (life == 2) break;
    work(*store, model, seed + life, 1 + life * 1000, 40, [] { return false; });
    device.crash(MemDevice::Crash::kill);
  }
  device.crash(how);
  model.check_against(*open_or_die(options()), true);
}

TEST_P(PowerLoss, AfterAKillAndASync) {
  for (int i = 0; i < 12 * rounds(); ++i) {
    const std::uint64_t seed = random_seed();
    SCOPED_TRACE("seed " + std::to_string(seed));
    kill_sync_and_cut(seed, GetParam());
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PowerLoss,
                         testing::Values(MemDevice::Crash::drop, MemDevice::Crash::tear),
                         [](const auto& each) {
                           return each.param == MemDevice::Crash::drop ? "drop" : "tear";
                         });

TEST(Crash, FailingTransfersNeverTurnIntoOtherBytes) {
  for (int i = 0; i < 5 * rounds(); ++i) {
    const std::uint64_t seed = random_seed();
    SCOPED_TRACE("seed " + std::to_string(seed));
    TempDirectory directory;
    MemDevice device({.seed = seed, .traits = {.alignment = kDiskPage}});
    const auto options = [&] {
      return small_segments(options_for(device, directory.path() + "/index"));
    };
    Model model;
    {
      auto store = open_or_die(options());
      device.fail_one_in(10);
      work(*store, model, seed, 1, 150, [] { return false; });
      device.fail_one_in(0);
    }
    model.check_against(*open_or_die(options()), false);
    if (HasFatalFailure()) return;
  }
}

TEST(Crash, AFailedSyncIsNeverForgotten) {
  TempDirectory directory;
  MemDevice device({});
  auto store = open_or_die(options_for(device, directory.path() + "/index"));
  ASSERT_TRUE(put(*store, block_id(1), 5000).ok());
  device.fail_next(MemDevice::Action::sync, Errc::io);
  EXPECT_EQ(store->sync({}, kTarget).code(), Errc::io);
  EXPECT_EQ(store->sync({}, kTarget).code(), Errc::io) << "the kernel would say ok now";
  EXPECT_EQ(put(*store, block_id(2), 5000, Safety::durable).code(), Errc::io);
  EXPECT_TRUE(check(*store, block_id(1), 5000).ok());
}

TEST(Crash, AFullDeviceSaysSoAndRemovalsMakeRoom) {
  TempDirectory directory;
  MemDevice device({.capacity_bytes = 40_MiB, .traits = {.alignment = kDiskPage}});
  auto store = open_or_die(small_segments(options_for(device, directory.path() + "/index")));
  std::uint64_t full_at = 0;
  for (std::uint64_t slice = 1; full_at == 0 && slice < 100; ++slice) {
    const Errc code = put(*store, block_id(slice), 1_MiB).code();
    if (code == Errc::ok) continue;
    ASSERT_EQ(code, Errc::no_space);
    full_at = slice;
  }
  ASSERT_GT(full_at, 25u) << "a tenth is kept free, not more";
  for (std::uint64_t slice = 1; slice < full_at; ++slice) {
    ASSERT_TRUE(check(*store, block_id(slice), 1_MiB).ok());
  }
  for (std::uint64_t slice = 1; slice < 10; ++slice) {
    ASSERT_TRUE(store->remove_slice({}, kTarget, BranchId(7), SliceId(slice)).ok());
  }
  for (std::uint64_t slice = full_at; slice < full_at + 8; ++slice) {
    EXPECT_TRUE(put(*store, block_id(slice), 1_MiB).ok()) << slice;
  }
  EXPECT_THAT(verify_all(*store), IsEmpty());
}

TEST(Crash, ADeviceThatIsFullInTheMiddleOfAPut) {
  TempDirectory directory;
  MemDevice device({.capacity_bytes = 1_GiB, .traits = {.alignment = kDiskPage}});
  auto store = open_or_die(small_segments(options_for(device, directory.path() + "/index")));
  ASSERT_TRUE(put(*store, block_id(1), 1_MiB).ok());
  device.fail_next(MemDevice::Action::write, Errc::no_space, 2);
  EXPECT_EQ(put(*store, block_id(2), 1_MiB).code(), Errc::no_space);
  EXPECT_EQ(put(*store, block_id(2), 1_MiB).code(), Errc::no_space);
  EXPECT_EQ(check(*store, block_id(2), 1_MiB).code(), Errc::not_found);
  EXPECT_TRUE(put(*store, block_id(2), 1_MiB).ok());
  EXPECT_TRUE(check(*store, block_id(2), 1_MiB).ok());
}

TEST(Crash, AFlippedByteIsFoundAndNothingElseIsLost) {
  TempDirectory directory;
  MemDevice device({.traits = {.alignment = kDiskPage}});
  auto store = open_or_die(options_for(device, directory.path() + "/index"));
  for (std::uint64_t slice = 1; slice <= 3; ++slice) {
    ASSERT_TRUE(put(*store, block_id(slice), 4_MiB).ok());
  }
  // The second record begins behind the first: a header's page and the payload. Unit 10 is hit.
  const std::uint64_t at = kMostRecord + kPage + 10 * kChecksumUnit + 4321;
  ASSERT_TRUE(device.flip(segment_name(1), at, std::byte{0x10}));
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(check(*store, block_id(1), 4_MiB).ok());
    EXPECT_EQ(check(*store, block_id(2), 4_MiB).code(), Errc::corrupt);
    EXPECT_TRUE(check(*store, block_id(3), 4_MiB).ok());
    const auto unit = static_cast<std::uint32_t>(10 * kChecksumUnit);
    EXPECT_EQ(check_range(*store, block_id(2), 4_MiB, unit + 5, 7).code(), Errc::corrupt);
    EXPECT_EQ(check_range(*store, block_id(2), 4_MiB, unit + 65'535, 2, true).code(),
              Errc::corrupt);
    Bytes unchecked(
        4_MiB);  // whole units are the reader's to check: it gets the writer's checksums
    LandingSink sink(unchecked.span());
    const auto reply = store->get({}, {kTarget, block_id(2), 0, 4_MiB}, sink);
    ASSERT_TRUE(reply.ok());
    EXPECT_FALSE(checksums_match(unchecked.span(), 0, reply->checksums));
    EXPECT_TRUE(check_range(*store, block_id(2), 4_MiB, 0, unit).ok());
    EXPECT_TRUE(check_range(*store, block_id(2), 4_MiB, unit + 65'536, 65'536).ok());
    EXPECT_EQ(store->counters(kTarget)->corrupt, 3u + (round == 0 ? 0 : 1));
    EXPECT_THAT(verify_all(*store, 2), ElementsAre(block_id(2)));
    store.reset();
    store = open_or_die(options_for(device, directory.path() + "/index"));
    (void)check(*store, block_id(2), 4_MiB);
  }
}

TEST(Crash, AFlippedByteOfASmallBlockIsServedFromTheIndexAndFoundByVerify) {
  TempDirectory directory;
  MemDevice device({});
  auto store = open_or_die(options_for(device, directory.path() + "/index"));
  ASSERT_TRUE(put(*store, block_id(1), 5000).ok());
  ASSERT_TRUE(device.flip(segment_name(1), 1000, std::byte{1}));
  EXPECT_TRUE(check(*store, block_id(1), 5000).ok());
  EXPECT_THAT(verify_all(*store), ElementsAre(block_id(1)));
}

TEST(Crash, DamageAnywhereIsAnErrorAndNeverOtherBytes) {
  TempDirectory origin;
  Rng lengths(5);
  std::vector<std::pair<BlockId, std::size_t>> blocks;
  {
    auto store = open_or_die(options_for(origin.path() + "/t"));
    for (std::uint64_t slice = 1; slice <= 30; ++slice) {
      blocks.emplace_back(block_id(slice), random_length(lengths));
      ASSERT_TRUE(put(*store, blocks.back().first, blocks.back().second).ok());
      if (slice == 15) (void)list_all(*store);
    }
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(origin.path())) {
    if (entry.is_regular_file() && entry.file_size() > 0) files.push_back(entry.path());
  }
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  int refused = 0, opened = 0;
  for (int round = 0; round < 25 * rounds(); ++round) {
    TempDirectory copy;
    std::filesystem::copy(origin.path(), copy.path(), std::filesystem::copy_options::recursive);
    if (rng.one_in(4)) std::filesystem::remove_all(copy.path() + "/t/index");
    const auto& victim = files[rng.below(files.size())];
    const auto path = copy.path() / std::filesystem::relative(victim, origin.path());
    if (std::filesystem::exists(path)) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      const std::uint64_t size = std::filesystem::file_size(path);
      for (std::uint64_t n = 1 + rng.below(64); n > 0; --n) {
        file.seekp(static_cast<std::streamoff>(rng.below(size)));
        file.put(static_cast<char>(rng.next()));
      }
    }
    auto store = Store::open(options_for(copy.path() + "/t"));
    if (!store.ok()) {
      ++refused;
      EXPECT_FALSE(store.status().text().empty());
      continue;
    }
    ++opened;
    for (const auto& [id, length] : blocks) {
      const Status status = check(**store, id, length);
      ASSERT_TRUE(status.text().find("OTHER") == std::string::npos) << victim;
    }
    (void)(*store)->verify({}, kTarget, "", 100);
  }
  EXPECT_GT(opened, 0);
  EXPECT_GT(refused, 0);
}

// --- kill -9 ---

struct Answer {
  std::uint64_t slice;
  std::uint32_t index;
  std::uint32_t length;  // 0: the slice was removed
};

/// Puts and removes from four threads for ever, and tells what was answered.
[[noreturn]] void child(const std::string& directory, int answers, std::uint64_t first_slice) {
  StoreOptions options = small_segments(options_for(directory));
  options.tuning.index_interval = Milliseconds(15);
  auto store = Store::open(std::move(options));
  if (!store.ok()) ::_exit(1);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(first_slice + t);
      const auto tell = [&](const Answer& answer) {
        if (::write(answers, &answer, sizeof answer) != sizeof answer) ::_exit(2);
      };
      for (std::uint64_t slice = first_slice + t * 100'000;; ++slice) {
        for (std::uint32_t index = 0; index < 3; ++index) {
          const std::size_t length = random_length(rng);
          const Safety safety = rng.one_in(10) ? Safety::durable : Safety::accepted;
          if (!put(**store, block_id(slice, index), length, safety).ok()) ::_exit(3);
          tell({slice, index, static_cast<std::uint32_t>(length)});
        }
        if (!rng.one_in(3)) continue;
        if (!(*store)->remove_slice({}, kTarget, BranchId(7), SliceId(slice)).ok()) ::_exit(4);
        tell({slice, 0, 0});
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ::_exit(5);
}

/// Not a test: the process that kill_and_compare starts, anew, since threads do not survive a fork.
TEST(KillChild, DISABLED_Run) {
  const char* directory = std::getenv("STARLANE_TEST_DIRECTORY");
  const char* answers = std::getenv("STARLANE_TEST_ANSWERS");
  const char* first_slice = std::getenv("STARLANE_TEST_FIRST_SLICE");
  if (directory == nullptr || answers == nullptr || first_slice == nullptr) return;
  child(directory, std::atoi(answers), std::strtoull(first_slice, nullptr, 10));
}

pid_t start_child(const std::string& directory, int answers, std::uint64_t first_slice) {
  const std::string settings[] = {"STARLANE_TEST_DIRECTORY=" + directory,
                                  "STARLANE_TEST_ANSWERS=" + std::to_string(answers),
                                  "STARLANE_TEST_FIRST_SLICE=" + std::to_string(first_slice)};
  const char* arguments[] = {"block_test", "--gtest_filter=KillChild.DISABLED_Run",
                             "--gtest_also_run_disabled_tests", nullptr};
  std::vector<const char*> environment;
  for (char** each = environ; *each != nullptr; ++each) environment.push_back(*each);
  for (const std::string& setting : settings) environment.push_back(setting.c_str());
  environment.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::fcntl(answers, F_SETFD, 0);  // stays open over exec
  ::close(STDOUT_FILENO);
  ::execve("/proc/self/exe", const_cast<char**>(arguments), const_cast<char**>(environment.data()));
  ::_exit(6);
}

void kill_and_compare(const std::string& parent, int kills) {
  TempDirectory directory(parent);
  std::map<BlockId, std::size_t> blocks;
  std::set<std::uint64_t> removed, last_slices;
  for (int round = 0; round < kills; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t pid =
        start_child(directory.path(), ends[1], 1 + 1'000'000ull * static_cast<unsigned>(round));
    ASSERT_GE(pid, 0);
    ::close(ends[1]);
    const std::size_t wanted = 100 + 50 * static_cast<std::size_t>(round);
    Answer answer;
    for (std::size_t n = 0; ::read(ends[0], &answer, sizeof answer) == sizeof answer; ++n) {
      if (answer.length == 0)
        removed.insert(answer.slice);
      else
        blocks[block_id(answer.slice, answer.index)] = answer.length;
      if (n == wanted) {
        ASSERT_EQ(::kill(pid, SIGKILL), 0);
      }
    }
    ::close(ends[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed with " << WEXITSTATUS(status);

    auto store = open_or_die(small_segments(options_for(directory.path())));
    for (const auto& [id, length] : blocks) {
      const Status found = check(*store, id, length);
      // The last removal of a thread may have happened without an answer.
      if (removed.contains(id.slice.value)) {
        ASSERT_EQ(found.code(), Errc::not_found) << found.to_string();
      } else if (found.code() == Errc::not_found) {
        last_slices.insert(id.slice.value);
        ASSERT_EQ(put(*store, id, length).code(), Errc::fenced) << "lost, not removed";
      } else {
        ASSERT_TRUE(found.ok()) << found.to_string();
      }
    }
    ASSERT_THAT(verify_all(*store), IsEmpty());
    ASSERT_LE(last_slices.size(), 4u * static_cast<unsigned>(round + 1));
  }
}

TEST(Crash, EveryAnsweredPutSurvivesKill9OnTmpfs) { kill_and_compare("/dev/shm", 3 * rounds()); }
TEST(Crash, EveryAnsweredPutSurvivesKill9OnADisk) { kill_and_compare("/var/tmp", 2 * rounds()); }

}  // namespace
}  // namespace starlane::block
