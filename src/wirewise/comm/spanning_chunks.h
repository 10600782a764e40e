// How long transfers are cut: chunks, so that what one brings is used while the next is under way.
#pragma once

#include <algorithm>
#include <cstddef>

namespace wirewise::comm {

inline constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

/// Calls what(from, length) for each chunk of `length` elements of `element` bytes.
template <typename What>
void each_chunk(std::size_t length, std::size_t element, const What& what) {
  const std::size_t most = kChunkBytes / element;
  for (std::size_t from = 0; from < length; from += most) what(from, std::min(most, length - from));
}

}  // namespace wirewise::comm
