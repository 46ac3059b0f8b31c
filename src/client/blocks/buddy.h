// Splits one span of memory into pieces of 2^k units that merge again when they are free (the buddy
// method), the most recently freed first, so that warm memory is used again: touching fresh memory
// is the slowest thing a client can do (0.65 GB/s measured). One thread at a time.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace starlane::client {

class Buddy {
 public:
  static constexpr unsigned kMaxOrder = 16;

  /// `units` is rounded down to a multiple of 2^top_order; no piece is larger than that.
  Buddy(std::uint32_t units, unsigned top_order);

  /// First unit of a piece of 2^order units, aligned to its size; nothing when there is none.
  std::optional<std::uint32_t> take(unsigned order);
  void give(std::uint32_t unit, unsigned order);
  std::uint64_t free_units() const { return free_units_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::uint8_t kNotFree = 0xff;
  struct Links {
    std::uint32_t next = kNone, previous = kNone;
  };
  void push(std::uint32_t unit, unsigned order);
  void unlink(std::uint32_t unit, unsigned order);

  const unsigned top_order_;
  std::vector<Links> links_;
  std::vector<std::uint8_t> free_order_;  // of the free piece that begins at a unit, or kNotFree
  std::array<std::uint32_t, kMaxOrder + 1> first_;
  std::uint64_t free_units_ = 0;
};

}  // namespace starlane::client
