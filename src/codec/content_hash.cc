#include "codec/content_hash.h"

#include <openssl/evp.h>

#include "common/status.h"

namespace starlane {

struct ContentHasher::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) {
  SL_CHECK(state_->context != nullptr &&
           EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}

ContentHasher::~ContentHasher() = default;

void ContentHasher::update(ByteSpan bytes) {
  SL_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

ContentHash ContentHasher::finish() {
  ContentHash hash{};
  unsigned length = 0;
  SL_CHECK(EVP_DigestFinal_ex(state_->context, reinterpret_cast<unsigned char*>(hash.data()),
                              &length) == 1 &&
           length == hash.size());
  return hash;
}

std::string to_hex(const ContentHash& hash) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::byte byte : hash) {
    out += kDigits[std::to_integer<unsigned>(byte) >> 4];
    out += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return out;
}

}  // namespace starlane
