#include "common/rng.h"

#include <sys/random.h>

#include "common/status.h"

namespace starlane {

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  SL_CHECK(::getrandom(&seed, sizeof seed, 0) == sizeof seed);
  return seed;
}

}  // namespace starlane
