#include "codec/content_hash.h"

#include <gtest/gtest.h>

namespace starlane {
namespace {

TEST(ContentHash, IsSha256HoweverThePiecesFall) {
  ContentHasher whole, pieces;
  whole.update(bytes_of("abc"));
  pieces.update(bytes_of("a"));
  pieces.update({});
  pieces.update(bytes_of("bc"));
  const std::string expected =
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // FIPS 180-2
  EXPECT_EQ(to_hex(whole.finish()), expected);
  EXPECT_EQ(to_hex(pieces.finish()), expected);
}

}  // namespace
}  // namespace starlane
