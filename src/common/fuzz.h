// Fuzzing of decoders, for each folder's fuzz_test.cc: valid encodings, the files of
// tests/corpus/NAME, and mutations of both, are fed for two seconds, or SL_FUZZ_ROUNDS inputs.
// The seed is printed; SL_FUZZ_SEED runs one again. An input that kills the process or fails a
// check is left in /tmp, to join the corpus. One at a time.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/rng.h"
#include "common/status.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>

extern "C" {
// Of <sanitizer/allocator_interface.h>, which gcc does not install.
int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void*, std::size_t),
                                              void (*freed)(const volatile void*));
/// Undefined behaviour is a failure: else it would be printed and passed over.
[[gnu::used]] inline const char* __ubsan_default_options() {
  return "halt_on_error=1:abort_on_error=1:print_stacktrace=1";
}
}
#endif

namespace starlane {

/// Inputs out of inputs.
class Mutator {
 public:
  explicit Mutator(Rng& rng) : rng_(rng) {}

  void add(std::string_view input) { pool_.emplace_back(input); }
  std::size_t size() const { return pool_.size(); }
  const std::string& operator[](std::size_t i) const { return pool_[i]; }

  std::string next() {
    std::string bytes = any();
    for (std::uint64_t times = 1 + rng_.below(5); times > 0; --times) mutate(bytes);
    if (bytes.size() > kLongest) bytes.resize(kLongest);
    return bytes;
  }
  /// What a decoder took leads deeper than the seeds.
  void remember(const std::string& input) {
    if (pool_.size() < kMost)
      pool_.push_back(input);
    else if (own_ < kMost)
      pool_[own_ + rng_.below(kMost - own_)] = input;
  }
  /// The pool so far is kept.
  void end_seeds() { own_ = pool_.size(); }

 private:
  static constexpr std::size_t kLongest = 64 << 10, kMost = 1024;

  /// Half of them seeds: what is remembered may be easy to take.
  const std::string& any() {
    return pool_[rng_.below(own_ != 0 && rng_.one_in(2) ? own_ : pool_.size())];
  }
  std::size_t place(const std::string& bytes) { return rng_.below(bytes.size() + 1); }

  void mutate(std::string& bytes) {
    switch (rng_.below(9)) {
      case 0:
        if (!bytes.empty())
          bytes[rng_.below(bytes.size())] ^= static_cast<char>(1 << rng_.below(8));
        return;
      case 1:
        return bytes.resize(place(bytes));
      case 2:
        bytes.insert(place(bytes), 1 + rng_.below(8), static_cast<char>(rng_.next()));
        return;
      case 3:
        return put_edge(bytes);
      case 4:
        return put_digits(bytes);
      case 5:
        bytes += any();
        return;
      case 6: {  // a piece of another one
        const std::string& other = any();
        const std::size_t from = place(other);
        bytes.insert(place(bytes), other, from, rng_.below(64));
        return;
      }
      case 7:
        bytes.erase(place(bytes), rng_.below(16));
        return;
      default:
        bytes.erase(0, rng_.below(bytes.size() + 1));
        return;
    }
  }
  /// A number at its edges, of any width.
  void put_edge(std::string& bytes) {
    static constexpr std::uint64_t kEdges[] = {0,
                                               1,
                                               0x7f,
                                               0x80,
                                               0xff,
                                               0x7fff,
                                               0xffff,
                                               0x10000,
                                               0x7fffffff,
                                               0x80000000,
                                               0xfffffffe,
                                               0xffffffff,
                                               1ULL << 32,
                                               1ULL << 40,
                                               INT64_MAX,
                                               1ULL << 63,
                                               ~1ULL,
                                               ~0ULL,
                                               UINT64_MAX / 16,
                                               4096,
                                               4_MiB};
    const std::uint64_t edge = kEdges[rng_.below(std::size(kEdges))];
    const std::size_t width = std::size_t{1} << rng_.below(4);
    if (bytes.size() >= width)
      std::memcpy(bytes.data() + rng_.below(bytes.size() - width + 1), &edge, width);
  }
  /// The same in texts: a run of digits becomes another number.
  void put_digits(std::string& bytes) {
    static constexpr const char* kNumbers[] = {"0",
                                               "-1",
                                               "65536",
                                               "4294967296",
                                               "9223372036854775808",
                                               "18446744073709551616",
                                               "1e999",
                                               "0.5",
                                               "nan",
                                               "",
                                               "00000000000000000000000000000001",
                                               "true",
                                               "\"\"",
                                               "[]",
                                               "{}"};
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    auto at = std::find_if(bytes.begin() + static_cast<std::ptrdiff_t>(place(bytes)), bytes.end(),
                           is_digit);
    if (at == bytes.end()) return;
    bytes.replace(at, std::find_if_not(at, bytes.end(), is_digit),
                  kNumbers[rng_.below(std::size(kNumbers))]);
  }

  Rng& rng_;
  std::vector<std::string> pool_;
  std::size_t own_ = 0;
};

class Fuzz {
 public:
  /// name: of the test's folder in tests/corpus, which need not be there.
  explicit Fuzz(std::string name) : name_(std::move(name)) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed_));
    std::fflush(stdout);
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(SL_CORPUS "/" + name_, none)) {
      std::ifstream file(entry.path(), std::ios::binary);
      inputs_.add(std::string(std::istreambuf_iterator<char>(file), {}));
    }
  }

  Rng& rng() { return rng_; }
  void add(std::string_view valid) { inputs_.add(valid); }
  void add(ByteSpan valid) { inputs_.add(text_of(valid)); }
  template <typename T>
  void add_plain(const T& valid) {
    add(std::as_bytes(std::span(&valid, 1)));
  }
  /// A decoder may allocate so much at once for an empty input (and 64 bytes for each of its
  /// bytes): never by a number that it was told. Looked at with AddressSanitizer.
  void set_allowance(std::size_t bytes) { allowance_ = bytes; }

  /// feed(ByteSpan): checks with EXPECT_…; whether anything took the input.
  template <typename Feed>
  void run(const Feed& feed) {
    ASSERT_GT(inputs_.size(), 0u);
    const Watch watch(*this);
    inputs_.end_seeds();
    for (std::size_t i = 0; i < inputs_.size() && good(); ++i) one(inputs_[i], feed);
    const char* wanted = std::getenv("SL_FUZZ_ROUNDS");
    const std::uint64_t rounds = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : ~0ULL;
    const auto end = std::chrono::steady_clock::now() + kDuration;
    for (std::uint64_t i = 0; i < rounds && good(); ++i) {
      if (i % kRoundsOfBatch == 0) watch.begin_batch();
      if (wanted == nullptr && std::chrono::steady_clock::now() > end) break;
      const std::string input = inputs_.next();
      if (one(input, feed) && rng_.one_in(64)) inputs_.remember(input);
    }
  }

 private:
  static constexpr std::chrono::seconds kDuration{2};
  static constexpr std::uint64_t kRoundsOfBatch = 64;
  static constexpr int kBatchLimitSeconds = 60;  // of processor time

  static std::uint64_t seed() {
    const char* again = std::getenv("SL_FUZZ_SEED");
    return again != nullptr ? std::strtoull(again, nullptr, 10) : random_seed();
  }
  static bool good() { return !testing::Test::HasFailure(); }

  template <typename Feed>
  bool one(const std::string& input, const Feed& feed) {
    // A copy of just its size, so that the sanitizer sees the first byte beyond.
    const std::vector<std::byte> exact(bytes_of(input).begin(), bytes_of(input).end());
    now_ = exact;
    largest() = 0;
    const bool taken = feed(ByteSpan(exact));
    EXPECT_LE(largest(), allowance_ + 64 * exact.size()) << "allocated at once";
    if (!good()) save("failed a check");
    now_ = {};
    return taken;
  }

  /// Async-signal-safe.
  void save(const char* why) const {
    const auto say = [](std::string_view text) {
      [[maybe_unused]] const auto n = ::write(STDERR_FILENO, text.data(), text.size());
    };
    const int fd = ::open(left_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || ::write(fd, now_.data(), now_.size()) < 0) say("cannot save the input\n");
    ::close(fd);
    say("an input ");
    say(why);
    say(": ");
    say(left_);
    say("\n");
  }

  /// Of one allocation, in this thread.
  static std::size_t& largest() {
    thread_local std::size_t bytes = 0;
    return bytes;
  }
  static Fuzz*& running() {
    static Fuzz* fuzz = nullptr;
    return fuzz;
  }

  /// While inputs are fed: what ends the process, or does not end, leaves its input.
  class Watch {
   public:
    explicit Watch(Fuzz& fuzz) {
      running() = &fuzz;
      struct sigaction action {};
      action.sa_flags = SA_RESETHAND;
      action.sa_handler = [](int number) {
        running()->save(number == SIGPROF ? "takes for ever" : "ended the process");
        if (number == SIGPROF) ::abort();
      };
      for (const int number : signals()) ::sigaction(number, &action, nullptr);
#ifdef __SANITIZE_ADDRESS__
      __sanitizer_set_death_callback([] {
        if (running() != nullptr) running()->save("ended the process");
      });
      [[maybe_unused]] static const int installed = __sanitizer_install_malloc_and_free_hooks(
          [](const volatile void*, std::size_t bytes) { largest() = std::max(largest(), bytes); },
          [](const volatile void*) {});
#endif
    }
    ~Watch() {
      set_limit(0);
      for (const int number : signals()) ::signal(number, SIG_DFL);
      running() = nullptr;
    }
    void begin_batch() const { set_limit(kBatchLimitSeconds); }

   private:
    static std::vector<int> signals() {
#ifdef __SANITIZE_ADDRESS__
      return {SIGABRT, SIGPROF};  // the others are the sanitizer's
#else
      return {SIGABRT, SIGPROF, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#endif
    }
    static void set_limit(int seconds) {
      const itimerval limit{{}, {seconds, 0}};
      ::setitimer(ITIMER_PROF, &limit, nullptr);
    }
  };

  const std::string name_;
  const std::uint64_t seed_ = seed();
  const std::string left_ = "/tmp/starlane-fuzz-" + name_ + "-" + std::to_string(seed_);
  Rng rng_{seed_};
  Mutator inputs_{rng_};
  std::size_t allowance_ = 64 << 10;
  ByteSpan now_;
};

/// Whether `decoded` was taken; a refusal has a sentence.
template <typename T>
bool taken(const Result<T>& decoded) {
  if (decoded.ok()) return true;
  EXPECT_FALSE(decoded.status().text().empty()) << decoded.status().to_string();
  return false;
}

}  // namespace starlane
