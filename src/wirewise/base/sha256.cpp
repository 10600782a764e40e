#include "wirewise/base/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "wirewise/base/error.h"

namespace wirewise {
namespace {

EVP_MD_CTX* context_of(void* pointer) { return static_cast<EVP_MD_CTX*>(pointer); }

void check(int ok) {
  if (ok != 1)
    throw Error(ErrorKind::kFailed, "the cryptography library could not compute SHA-256.", "Check the installation of OpenSSL.");
}

}  // namespace

void Sha256::Free::operator()(void* context) const noexcept { EVP_MD_CTX_free(context_of(context)); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  check(context_ != nullptr ? EVP_DigestInit_ex(context_of(context_.get()), EVP_sha256(), nullptr) : 0);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(const void* data, std::size_t bytes) { check(EVP_DigestUpdate(context_of(context_.get()), data, bytes)); }

std::string Sha256::hex() const {
  // Finalising ends a context, so a copy is finalised.
  const std::unique_ptr<void, Free> copy(EVP_MD_CTX_new());
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  check(copy != nullptr ? EVP_MD_CTX_copy_ex(context_of(copy.get()), context_of(context_.get())) : 0);
  check(EVP_DigestFinal_ex(context_of(copy.get()), digest.data(), &length));
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text += kDigits[digest[i] >> 4U];
    text += kDigits[digest[i] & 15U];
  }
  return text;
}

}  // namespace wirewise
