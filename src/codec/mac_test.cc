#include "codec/mac.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace starlane {
namespace {

std::string hex(ByteSpan bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte b : bytes) {
    text += kDigits[std::to_integer<unsigned>(b) >> 4];
    text += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

TEST(Mac, GoldenVectorsOfRfc4231) {
  EXPECT_EQ(hex(hmac_sha256(bytes_of(std::string(20, '\x0b')), bytes_of("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256(bytes_of("Jefe"), bytes_of("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(bytes_of(std::string(131, '\xaa')),
                            bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Mac, EmptyKeyAndMessage) {
  EXPECT_EQ(hex(hmac_sha256({}, {})),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  // An empty key after another one must not mean the other one.
  (void)hmac_sha256(bytes_of("secret"), bytes_of("x"));
  EXPECT_EQ(hex(hmac_sha256({}, {})),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(Mac, SecretsCompareByLengthAndEveryByte) {
  EXPECT_TRUE(equal_secret(bytes_of("abc"), bytes_of("abc")));
  EXPECT_TRUE(equal_secret({}, {}));
  EXPECT_FALSE(equal_secret(bytes_of("abc"), bytes_of("abd")));
  EXPECT_FALSE(equal_secret(bytes_of("abc"), bytes_of("xbc")));
  EXPECT_FALSE(equal_secret(bytes_of("abc"), bytes_of("ab")));
}

TEST(Mac, RandomBytesDiffer) {
  std::set<std::vector<std::byte>> seen;
  for (int i = 0; i < 100; ++i) {
    std::vector<std::byte> bytes(16);
    ASSERT_TRUE(fill_random(bytes).ok());
    EXPECT_TRUE(seen.insert(bytes).second);
  }
}

}  // namespace
}  // namespace starlane
