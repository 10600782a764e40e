// What one launcher asks of another that it started on another host: a letter each, over the other's standard input. Its end means that the
// asking one is gone.
#pragma once

#include <csignal>
#include <optional>

namespace wirewise {

inline constexpr char kEndOrder = 'E';  // ranks elsewhere have failed: end yours

/// The letter that asks for a signal to be passed to the ranks; 0 for signals that nobody asks for.
[[nodiscard]] constexpr char order_of(int signal) noexcept {
  return signal == SIGINT ? 'I' : signal == SIGTERM ? 'T' : signal == SIGUSR1 ? 'U' : '\0';
}
[[nodiscard]] constexpr std::optional<int> signal_of(char order) noexcept {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    if (order_of(signal) == order) return signal;
  }
  return std::nullopt;
}

}  // namespace wirewise
