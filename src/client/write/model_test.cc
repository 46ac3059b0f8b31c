// Random reads, writes, truncations and flushes on several files from several threads, with servers
// that fail and answers that get lost, against arrays of bytes.
#include <atomic>
#include <thread>

#include "client/write/rig.h"

namespace starlane::client {
namespace {

constexpr std::uint64_t kMaxLength = 10_MiB;

struct ModelFile {
  FileKey key;
  Mutex m;
  std::string bytes;
  std::shared_ptr<ReadStreams> streams;
};

class Model {
 public:
  Model(std::uint64_t seed, Faults faults, std::size_t files) : rig_(seed), seed_(seed) {
    rig_.blocks->set_faults(faults);
    rig_.meta.set_faults(faults);
    for (std::size_t i = 0; i < files; ++i) {
      files_.push_back(std::make_unique<ModelFile>());
      files_.back()->key = rig_.create(i + 10);
      files_.back()->streams = rig_.io->new_streams();
    }
  }

  void run(std::size_t threads, int steps) {
    std::vector<std::thread> running;
    for (std::size_t t = 0; t < threads; ++t) {
      running.emplace_back([this, t, steps] {
        Rng rng(seed_ * 1000 + t);
        for (int i = 0; i < steps && !failed_; ++i) step(rng);
      });
    }
    for (std::thread& thread : running) thread.join();
  }

  /// Through a client that starts cold: what was committed, and nothing else, must be there.
  void check_all() {
    const Status flushed = rig_.io->flush_all(Safety::durable);
    ASSERT_TRUE(flushed.ok()) << flushed.to_string();
    rig_.blocks->set_faults({});
    rig_.meta.set_faults({});
    rig_.open(Rig::small());
    for (const auto& file : files_) {
      ASSERT_TRUE(rig_.meta.durable(file->key));
      const auto read = rig_.read(file->key, 0, static_cast<std::uint32_t>(kMaxLength));
      ASSERT_TRUE(read.ok()) << read.status().to_string();
      expect_same(*read, file->bytes, "cold", 0);
    }
  }

 private:
  void step(Rng& rng) {
    ModelFile& file = *files_[rng.below(files_.size())];
    MutexLock lock(file.m);
    switch (rng.below(16)) {
      case 0:
        return expect_ok(rig_.io->flush(file.key, Safety::accepted), "flush");
      case 1:
        if (rng.one_in(2)) return expect_ok(rig_.io->flush(file.key, Safety::durable), "fsync");
        return truncate(file, rng);
      case 2:
      case 3:
      case 4:
      case 5:
        return read(file, rng);
      case 6:
        return read_into(file, rng);
      default:
        return write(file, rng);
    }
  }

  void write(ModelFile& file, Rng& rng) {
    static constexpr std::uint64_t kSizes[] = {10, 4096, 100'000, 1 << 20, 5 << 20};
    const std::uint64_t length = 1 + rng.below(kSizes[rng.below(std::size(kSizes))]);
    const bool on = rng.one_in(2);  // where the last write may have ended
    std::uint64_t offset = on ? file.bytes.size() : rng.below(file.bytes.size() + 1000);
    if (offset + length > kMaxLength) offset = rng.below(kMaxLength - length);
    const std::string bytes = noise(length, rng.next());
    expect_ok(rig_.write(file.key, offset, bytes), "write");
    if (file.bytes.size() < offset + length) file.bytes.resize(offset + length);
    file.bytes.replace(offset, length, bytes);
  }

  void read(ModelFile& file, Rng& rng) {
    const std::uint64_t offset = rng.below(file.bytes.size() + 10);
    const auto length = static_cast<std::uint32_t>(1 + rng.below(rng.one_in(3) ? 3 << 20 : 5000));
    const auto got =
        rig_.read(file.key, offset, length, rng.one_in(3) ? nullptr : file.streams.get());
    if (!got.ok()) return expect_ok(got.status(), "read");
    const std::string want = offset < file.bytes.size() ? file.bytes.substr(offset, length) : "";
    expect_same(*got, want, "read", offset);
  }

  void read_into(ModelFile& file, Rng& rng) {
    const std::uint64_t offset = rng.below(file.bytes.size() + 10);
    std::string got(1 + rng.below(2 << 20), 'x');
    const auto count =
        rig_.io->read_into(file.key, rig_.known(file.key), offset,
                           std::as_writable_bytes(std::span(got.data(), got.size())), 0);
    if (!count.ok()) return expect_ok(count.status(), "read_into");
    const std::string want =
        offset < file.bytes.size() ? file.bytes.substr(offset, got.size()) : "";
    got.resize(*count);
    expect_same(got, want, "read_into", offset);
  }

  void truncate(ModelFile& file, Rng& rng) {
    const std::uint64_t length =
        rng.one_in(3) ? 0 : rng.below(file.bytes.size() + 100'000) % kMaxLength;
    rig_.truncate(file.key, length);
    file.bytes.resize(length);
  }

  void expect_ok(const Status& status, const char* what) {
    if (status.ok()) return;
    failed_ = true;
    ADD_FAILURE() << "seed " << seed_ << ": " << what << ": " << status.to_string();
  }
  void expect_same(const std::string& got, const std::string& want, const char* what,
                   std::uint64_t offset) {
    if (got == want) return;
    failed_ = true;
    const auto differs =
        std::mismatch(got.begin(), got.end(), want.begin(), want.end()).first - got.begin();
    ADD_FAILURE() << "seed " << seed_ << ": " << what << " at " << offset << " gave " << got.size()
                  << " bytes, want " << want.size() << ", different from byte " << differs;
  }

  Rig rig_;
  const std::uint64_t seed_;
  std::vector<std::unique_ptr<ModelFile>> files_;
  std::atomic<bool> failed_{false};  // set once; only ends the test early
};

TEST(FileIoModel, ThreadsOnHealthyServers) {
  const std::uint64_t seed = random_seed();
  std::printf("seed %lu\n", seed);
  Model model(seed, {}, 5);
  model.run(3, 400);
  model.check_all();
}

TEST(FileIoModel, ThreadsOnFailingServers) {
  const std::uint64_t seed = random_seed();
  std::printf("seed %lu\n", seed);
  Model model(seed, {12, 25}, 4);
  model.run(3, 250);
  model.check_all();
}

TEST(FileIoModel, OneThreadManySeeds) {
  for (int round = 0; round < 6; ++round) {
    const std::uint64_t seed = random_seed();
    std::printf("seed %lu\n", seed);
    Model model(seed, {30, 60}, 2);
    model.run(1, 120);
    model.check_all();
    if (HasFailure()) return;
  }
}

TEST(FileIoModel, ThreadsWriteStripesOfOneFile) {
  Rig rig;
  const FileKey file = rig.create(1);
  constexpr std::size_t kThreads = 4, kStripe = 60'000, kStripes = 300;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < kStripes; i += kThreads) {
        const Status status = rig.write(file, i * kStripe, noise(kStripe, i));
        if (!status.ok()) ADD_FAILURE() << status.to_string();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(rig.io->flush(file, Safety::accepted).ok());
  const auto read = rig.read(file, 0, kStripe * kStripes + 10);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), kStripe * kStripes);
  for (std::size_t i = 0; i < kStripes; ++i)
    ASSERT_EQ(read->substr(i * kStripe, kStripe), noise(kStripe, i)) << i;
}

}  // namespace
}  // namespace starlane::client
