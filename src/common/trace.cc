#include "common/trace.h"

#include "common/rng.h"

namespace starlane {

std::uint64_t make_trace(std::uint64_t number) {
  static const std::uint64_t process = (random_seed() | 1) << 48;
  return process | (number & ((std::uint64_t{1} << 48) - 1));
}

}  // namespace starlane
