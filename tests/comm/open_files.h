// How many files this process has open, for tests of what stays behind.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>

namespace wirewise::testing {

inline std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

}  // namespace wirewise::testing
