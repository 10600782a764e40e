// SHA-256 against the examples of FIPS 180-2.
#include "wirewise/base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace wirewise {
namespace {

std::string hash(const std::string& text) {
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.hex();
}

TEST(Sha256, MatchesThePublishedExamples) {
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, IsTheSameInAnyPiecesAndGoesOnAfterADigest) {
  const std::string text(1000, 'x');
  Sha256 pieces;
  for (std::size_t at = 0; at < text.size(); at += 7) {
    pieces.update(text.data() + at, std::min<std::size_t>(7, text.size() - at));
    if (at == 70) {
      EXPECT_EQ(pieces.hex(), hash(text.substr(0, 77)));
    }
  }
  EXPECT_EQ(pieces.hex(), hash(text));
}

}  // namespace
}  // namespace wirewise
