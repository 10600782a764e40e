// Progress of long work: a bar with the time left where a person looks on, a plain line now and then elsewhere. Always on
// standard error or the descriptor given, never among results.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "wirewise/base/terminal.h"
#include "wirewise/base/units.h"

namespace wirewise {

/// One line of a bar, at most `terminal.width - 1` columns: "train  42% |████████        | 84/200 0:12 left  loss 3.21". `eta`
/// negative: not known yet. Without colour the bar is drawn in ASCII.
[[nodiscard]] std::string render_bar(std::string_view label, std::uint64_t done, std::uint64_t total, Seconds eta,
                                     std::string_view detail, const Terminal& terminal);

class Progress {
 public:
  using Clock = std::function<Seconds()>;  // seconds since any fixed moment

  /// total > 0 steps of work. Plain lines come at most once in `plain_interval` seconds.
  Progress(std::string label, std::uint64_t total, int fd = 2, Seconds plain_interval = 10);
  /// For tests: what the terminal is, where lines go, what time it is.
  Progress(std::string label, std::uint64_t total, Terminal terminal, std::function<void(std::string_view)> write, Clock clock,
           Seconds plain_interval);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` steps are done in all; `detail` is the newest figure worth showing. The time left comes from the pace since the first
  /// call, so slow start-up does not count; `done` of the first call is where a resumed run begins.
  void update(std::uint64_t done, std::string_view detail = {});

  /// Prints a whole line (validation, a checkpoint) and keeps the bar below it.
  void note(std::string_view line);

  /// Leaves the last state on the screen and ends the bar. Later calls do nothing.
  void finish();

 private:
  void draw();
  [[nodiscard]] Seconds time_left(Seconds now) const;

  std::string label_;
  std::uint64_t total_;
  Terminal terminal_;
  std::function<void(std::string_view)> write_;
  Clock clock_;
  Seconds plain_interval_;
  bool started_ = false;
  bool drawn_ = false;  // a bar is on the current line
  bool finished_ = false;
  std::uint64_t first_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t printed_ = 0;
  Seconds begin_ = 0;
  Seconds last_output_ = 0;
  std::string detail_;
};

}  // namespace wirewise
