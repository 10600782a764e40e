// Whoever connects to a rank that listens, until it has proven to be a rank: a stranger gets a second and no answer. Private to the
// host_channels* files.
#pragma once

#include <poll.h>

#include <chrono>
#include <deque>
#include <string>
#include <vector>

#include "wirewise/comm/unique_fd.h"

namespace wirewise::comm {

class Strangers {
 public:
  using Clock = std::chrono::steady_clock;
  /// Who showed this rank's cookie, and calls itself `rank`.
  struct Proven {
    int rank = -1;
    UniqueFd socket;
  };

  /// `listening`: non-blocking, open as long as this is. `rank` and `cookie` are what must be shown.
  Strangers(int listening, int rank, std::string cookie);

  /// Appends what is to be polled; `until` becomes no later than when go_on() is due whatever comes.
  void watch(std::vector<pollfd>& polls, Clock::time_point& until) const;
  /// Hears and accepts whoever there is; `came`: the listening socket was found readable. Returns those who have proven themselves.
  [[nodiscard]] std::vector<Proven> go_on(bool came);
  /// Where the listening socket stands among what watch() appends.
  static constexpr std::size_t kListening = 0;

 private:
  struct Stranger {
    UniqueFd socket;
    std::string in;
    Clock::time_point until;
  };
  void accept_all(std::vector<Proven>& proven);
  bool hear(Stranger& stranger, std::vector<Proven>& proven) const;

  int listening_;
  int rank_;
  std::string cookie_;
  std::deque<Stranger> strangers_;  // oldest first
  Clock::time_point accept_again_{};
};

}  // namespace wirewise::comm
