// SHA-256, streaming: the hash by which runs compare their weights.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace wirewise {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(const void* data, std::size_t bytes);

  /// The digest of all that was added, in 64 lower-case hexadecimal digits. More may be added afterwards.
  [[nodiscard]] std::string hex() const;

 private:
  struct Free {
    void operator()(void* context) const noexcept;
  };
  std::unique_ptr<void, Free> context_;  // EVP_MD_CTX
};

}  // namespace wirewise
