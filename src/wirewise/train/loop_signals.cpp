#include "wirewise/train/loop_signals.h"

#include <array>
#include <atomic>
#include <csignal>

namespace wirewise {
namespace {

std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);
constexpr std::array kSignals{SIGINT, SIGTERM, SIGUSR1};
std::array<struct sigaction, kSignals.size()> previous;

extern "C" void note_signal(int number) {
  int none = 0;
  first_signal.compare_exchange_strong(none, number);
}

}  // namespace

StopSignals::StopSignals() {
  first_signal = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &previous[i]);
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

int StopSignals::received() noexcept { return first_signal.load(); }

}  // namespace wirewise
