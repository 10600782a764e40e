// Signals that ask a run to stop: noted here, acted on by the loop once all ranks have heard of them.
#pragma once

namespace wirewise {

/// Notes SIGINT, SIGTERM and SIGUSR1 while it lives, and puts back what was there before.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  /// The signal that came first; 0: none.
  [[nodiscard]] static int received() noexcept;
};

}  // namespace wirewise
