#include "wirewise/comm/host_channels_greeting.h"

#include <openssl/crypto.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "wirewise/base/error.h"

namespace wirewise::comm {
namespace {

constexpr std::size_t kCookie = 32;
constexpr std::size_t kGreeting = 8 + 4 + 4 + kCookie;
constexpr std::string_view kMagic = "wwchan01";

int rank_in(const std::string& text, std::size_t at) {
  std::uint32_t value = 0;
  for (unsigned i = 0; i < 4; ++i) value |= static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i])) << (8 * i);
  return static_cast<int>(value);
}

}  // namespace

std::string greeting(int from, int to, const std::string& cookie) {
  std::string text(kMagic);
  for (const int rank : {from, to}) {
    for (unsigned i = 0; i < 4; ++i) text.push_back(static_cast<char>(static_cast<std::uint32_t>(rank) >> (8 * i)));
  }
  text += cookie;
  text.resize(kGreeting);
  return text;
}

int greeted_by(const std::string& text, int me, const std::string& cookie) {
  if (text.size() != kGreeting || cookie.size() != kCookie || !text.starts_with(kMagic) || rank_in(text, 12) != me) return -1;
  return CRYPTO_memcmp(text.data() + 16, cookie.data(), kCookie) == 0 ? rank_in(text, 8) : -1;
}

std::string new_cookie() {
  std::array<unsigned char, kCookie / 2> bytes{};
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t got = ::getrandom(bytes.data() + at, bytes.size() - at, 0);
    if (got > 0) at += static_cast<std::size_t>(got);
    if (got < 0 && errno != EINTR) throw Error(ErrorKind::kFailed, "The system gives no random numbers: " + std::generic_category().message(errno) + ".");
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

Step read_greeting(int socket, std::string& text) {
  while (text.size() < kGreeting) {
    std::array<char, kGreeting> block;
    const ssize_t got = ::recv(socket, block.data(), kGreeting - text.size(), MSG_DONTWAIT);
    if (got > 0) {
      text.append(block.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      return Step::kClosed;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Step::kWait;
    } else if (errno != EINTR) {
      return Step::kClosed;
    }
  }
  return Step::kDone;
}

Step write_rest(int socket, std::string& rest) {
  while (!rest.empty()) {
    const ssize_t put = ::send(socket, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put >= 0) {
      rest.erase(0, static_cast<std::size_t>(put));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Step::kWait;
    } else if (errno != EINTR) {
      return Step::kClosed;
    }
  }
  return Step::kDone;
}

}  // namespace wirewise::comm
