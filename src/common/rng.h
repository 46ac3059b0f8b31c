// Random numbers whose sequence is ours (xoshiro256**): the same seed gives the same run on every
// compiler.
#pragma once
#include <array>
#include <cstdint>

namespace starlane {

/// Not for secrets. One thread at a time.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) {
    for (auto& word : state_) {  // splitmix64
      std::uint64_t z = (seed += 0x9e3779b97f4a7c15ULL);
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
      word = z ^ (z >> 31);
    }
  }
  std::uint64_t next() {
    const auto rotate = [](std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); };
    const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
  }
  /// Uniform enough in [0, limit); limit > 0.
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::array<std::uint64_t, 4> state_;
};

/// A seed from the kernel, for tests that print it.
std::uint64_t random_seed();

}  // namespace starlane
