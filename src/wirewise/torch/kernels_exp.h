// The exponential that the softmax kernels share.
#pragma once

#include <algorithm>
#include <cstdint>

namespace wirewise::kernels {

/// e^x for x <= 0 to about one unit in the last place: 2^n * p(r), Cephes' split of ln 2 and its degree-5 polynomial. Loops over it vectorise.
[[gnu::always_inline]] inline float exp_nonpositive(float x) {
  x = std::max(x, -87.0F);
  const float shifted = x * 1.44269504088896341F + 12582912.0F;  // rounds to an integer in the low mantissa bits
  const float n = shifted - 12582912.0F;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const std::uint32_t power = (__builtin_bit_cast(std::uint32_t, shifted) << 23) + 0x3f800000U;
  return p * __builtin_bit_cast(float, power);
}

}  // namespace wirewise::kernels
