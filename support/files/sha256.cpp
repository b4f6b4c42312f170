#include <lockstep/support/files/sha256.h>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

void require(bool done) {
  if (!done) throw FailedError("libcrypto cannot compute SHA-256");
}

}  // namespace

// Without OpenSSL's configuration file, which may name shared objects to load.
Sha256::Sha256() {
  require(OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr) == 1);
  context_.reset(EVP_MD_CTX_new());
  require(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

void Sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest;
  require(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
  std::string digits;
  for (const auto byte : digest) digits += fmt::format("{:02x}", byte);
  return digits;
}

}  // namespace lockstep
