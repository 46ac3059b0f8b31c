// The block store against plain pwrite and pread of the same directory: MB/s of 4 MiB blocks from
// one and four threads, and small reads per second. Usage: block_store [MiB per run] [directory …];
// medians of five runs.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "block/store.h"
#include "codec/crc32c.h"
#include "common/rng.h"

namespace starlane {
namespace {

constexpr int kRuns = 5;
constexpr TargetId kTarget{1};

void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "block_store: %s\n", status.to_string().c_str());
  std::exit(1);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void in_threads(std::size_t threads, const std::function<void(std::size_t)>& work) {
  std::vector<std::thread> running;
  for (std::size_t t = 0; t < threads; ++t) running.emplace_back(work, t);
  for (auto& thread : running) thread.join();
}

struct FreeAligned {
  void operator()(std::byte* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<std::byte, FreeAligned>;

Buffer buffer() {
  Buffer made(static_cast<std::byte*>(std::aligned_alloc(4096, kBlockSize)));
  Rng rng(1);
  for (std::size_t i = 0; i < kBlockSize; i += 8) store_little(made.get() + i, rng.next());
  return made;
}

/// A directory that is measured, and removed.
class Bench {
 public:
  Bench(const std::string& parent, std::uint64_t bytes) : blocks_(bytes / kBlockSize) {
    std::string pattern = parent + "/starlane-bench-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) must(Status(Errc::io, "cannot write in " + parent));
    directory_ = pattern;
    for (int i = 0; i < 4; ++i) buffers_.push_back(buffer());
    checksums_ = checksum_units({buffers_[0].get(), kBlockSize});
  }
  ~Bench() { std::filesystem::remove_all(directory_); }

  void run() {
    measure_plain();
    open_store();
    std::printf("\n%s (%s), %llu MiB a run, medians of %d\n", directory_.c_str(),
                store_->targets({}).value()[0].device.c_str(),
                static_cast<unsigned long long>(blocks_ * kBlockSize >> 20), kRuns);
    std::printf("  %-34s %10s %10s %8s\n", "", "store", "plain", "ratio");
    for (const std::size_t threads : {1, 4}) measure_store(threads);
    measure_small();
  }

 private:
  void row(const std::string& what, double store, double plain, const char* unit) {
    std::printf("  %-34s %7.0f %s %7.0f %s %5.2f\n", what.c_str(), store, unit, plain, unit,
                store / plain);
  }
  double rate(double took) const { return static_cast<double>(blocks_ * kBlockSize) / took / 1e6; }

  /// The ceiling: one file, written fresh and read, one thread; O_DIRECT where the directory has
  /// it.
  void measure_plain() {
    std::vector<double> writes, reads, small;
    const std::string path = directory_ + "/plain";
    for (int run = 0; run < kRuns; ++run) {
      ::unlink(path.c_str());
      int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600);
      if (fd < 0) fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
      writes.push_back(rate(seconds([&] {
        for (std::uint64_t i = 0; i < blocks_; ++i) transfer(fd, i, true);
        ::fdatasync(fd);
      })));
      reads.push_back(rate(seconds([&] {
        for (std::uint64_t i = 0; i < blocks_; ++i) transfer(fd, i, false);
      })));
      Rng rng(2);
      small.push_back(kSmallReads / seconds([&] {
                        for (int i = 0; i < kSmallReads; ++i) {
                          const auto at =
                              static_cast<off_t>(rng.below(blocks_ * kBlockSize / 4096) * 4096);
                          if (::pread(fd, buffers_[1].get(), 4096, at) != 4096)
                            must(Status(Errc::io, "pread"));
                        }
                      }));
      ::close(fd);
    }
    ::unlink(path.c_str());
    plain_write_ = median(writes);
    plain_read_ = median(reads);
    plain_small_ = median(small);
  }
  void transfer(int fd, std::uint64_t block, bool write) {
    const auto at = static_cast<off_t>(block * kBlockSize);
    const ssize_t n = write ? ::pwrite(fd, buffers_[0].get(), kBlockSize, at)
                            : ::pread(fd, buffers_[1].get(), kBlockSize, at);
    if (n != static_cast<ssize_t>(kBlockSize)) must(Status(Errc::io, "plain transfer"));
  }

  void open_store() {
    block::StoreOptions options;
    options.cluster = "bench";
    options.targets.emplace_back();
    options.targets[0].id = kTarget;
    options.targets[0].directory = directory_ + "/target";
    auto opened = block::Store::open(std::move(options));
    must(opened.status());
    store_ = std::move(*opened);
  }

  void measure_store(std::size_t threads) {
    std::vector<double> puts, gets;
    for (int run = 0; run < kRuns; ++run) {
      const std::uint64_t first = slice_;
      slice_ += blocks_;
      puts.push_back(rate(seconds([&] {
        in_threads(threads, [&](std::size_t t) {
          for (std::uint64_t i = t; i < blocks_; i += threads) {
            MemorySource source({buffers_[0].get(), kBlockSize});
            must(store_->put({}, {kTarget, id(first + i), Safety::accepted, checksums_}, source));
          }
        });
        must(store_->sync({}, kTarget));
      })));
      gets.push_back(rate(seconds([&] {
        in_threads(threads, [&](std::size_t t) {
          for (std::uint64_t i = t; i < blocks_; i += threads) {
            LandingSink sink({buffers_[t].get(), kBlockSize});
            must(store_->get({}, {kTarget, id(first + i), 0, kBlockSize}, sink).status());
          }
        });
      })));
      const bool keep = run == kRuns - 1 && threads == 1;
      if (keep) kept_ = first;
      for (std::uint64_t i = 0; i < blocks_ && !keep; ++i) {
        must(store_->remove_slice({}, kTarget, BranchId(1), SliceId(first + i)));
      }
      (void)store_->list({}, kTarget, "", 1);  // gives the space back now
    }
    const std::string suffix =
        ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
    row("put 4 MiB, then sync" + suffix, median(puts), plain_write_, "MB/s");
    row("get 4 MiB" + suffix, median(gets), plain_read_, "MB/s");
  }

  void measure_small() {
    const std::vector<std::uint32_t> one = checksum_units({buffers_[0].get(), 5000});
    constexpr std::uint64_t kSmallBlocks = 2000;
    const std::uint64_t first = slice_;
    const double took = seconds([&] {
      for (std::uint64_t i = 0; i < kSmallBlocks; ++i) {
        MemorySource source({buffers_[0].get(), 5000});
        must(store_->put({}, {kTarget, id(first + i), Safety::accepted, one}, source));
      }
    });
    std::vector<double> parts, wholes;
    for (int run = 0; run < kRuns; ++run) {
      Rng rng(3);
      parts.push_back(
          kSmallReads / seconds([&] {
            for (int i = 0; i < kSmallReads; ++i) {
              LandingSink sink({buffers_[1].get(), 4096});
              const auto at = static_cast<std::uint32_t>(rng.below(1024) * 4096);
              must(store_->get({}, {kTarget, id(kept_ + rng.below(blocks_)), at, 4096}, sink)
                       .status());
            }
          }));
      wholes.push_back(
          kSmallReads / seconds([&] {
            for (int i = 0; i < kSmallReads; ++i) {
              LandingSink sink({buffers_[1].get(), 5000});
              must(store_->get({}, {kTarget, id(first + rng.below(kSmallBlocks)), 0, 5000}, sink)
                       .status());
            }
          }));
    }
    row("get 4 KiB of a 4 MiB block", median(parts), plain_small_, " 1/s");
    row("get a block of 5000 bytes", median(wholes), plain_small_, " 1/s");
    std::printf("  %-34s %7.0f  1/s\n", "put a block of 5000 bytes", kSmallBlocks / took);
  }

  static BlockId id(std::uint64_t slice) { return {BranchId(1), SliceId(slice), 0}; }

  static constexpr int kSmallReads = 5000;
  const std::uint64_t blocks_;
  std::string directory_;
  std::vector<Buffer> buffers_;
  std::vector<std::uint32_t> checksums_;
  std::unique_ptr<block::Store> store_;
  std::uint64_t slice_ = 1, kept_ = 0;
  double plain_write_ = 0, plain_read_ = 0, plain_small_ = 0;
};

}  // namespace
}  // namespace starlane

int main(int argc, char** argv) {
  const std::uint64_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 256;
  std::vector<std::string> directories(argv + std::min(argc, 2), argv + argc);
  if (directories.empty()) directories = {"/dev/shm", "/var/tmp"};
  if (mib < 4) {
    std::fprintf(stderr, "usage: block_store [MiB per run, at least 4] [directory ...]\n");
    return 2;
  }
  for (const std::string& directory : directories) starlane::Bench(directory, mib << 20).run();
  return 0;
}
