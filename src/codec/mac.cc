#include "codec/mac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <climits>

namespace starlane {
namespace {

const unsigned char* raw(ByteSpan bytes) {
  static constexpr unsigned char kNothing = 0;  // OpenSSL reads a null key as "the one before"
  return bytes.empty() ? &kNothing : reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

Mac hmac_sha256(ByteSpan key, ByteSpan message) {
  Mac mac;
  unsigned int length = 0;
  SL_CHECK(key.size() <= INT_MAX);
  const unsigned char* done =
      HMAC(EVP_sha256(), raw(key), static_cast<int>(key.size()), raw(message), message.size(),
           reinterpret_cast<unsigned char*>(mac.data()), &length);
  SL_CHECK(done != nullptr && length == mac.size());  // fails only when memory is gone
  return mac;
}

bool equal_secret(ByteSpan a, ByteSpan b) {
  return a.size() == b.size() && CRYPTO_memcmp(raw(a), raw(b), a.size()) == 0;
}

Status fill_random(MutableByteSpan out) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // OpenSSL counts in int
  while (!out.empty()) {
    const std::size_t n = std::min(out.size(), kMost);
    if (RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(n)) != 1) {
      return Status(Errc::io, "the system gives no random bytes");
    }
    out = out.subspan(n);
  }
  return {};
}

}  // namespace starlane
