#include "wirewise/base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace wirewise {
namespace {

constexpr Seconds kRedraw = 0.05;  // a terminal gains nothing from more than 20 pictures a second

Seconds steady_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // progress is a courtesy: a closed terminal must not end the work
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// "0:12", "12:05", "3:07:09".
std::string clock_text(Seconds seconds) {
  const auto whole = static_cast<long long>(std::llround(std::clamp(seconds, 0.0, 3.6e8)));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string head_of(std::string_view label, std::uint64_t done, std::uint64_t total) {
  const auto percent = static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total));
  return fmt::format("{} {:3}%", label, percent);
}

std::string tail_of(std::uint64_t done, std::uint64_t total, Seconds eta, std::string_view detail) {
  std::string tail = fmt::format("{}/{}", done, total);
  if (eta >= 0) tail += fmt::format(" {} left", clock_text(eta));
  if (!detail.empty()) tail += fmt::format("  {}", detail);
  return tail;
}

}  // namespace

std::string render_bar(std::string_view label, std::uint64_t done, std::uint64_t total, Seconds eta, std::string_view detail,
                       const Terminal& terminal) {
  done = std::min(done, total);
  const std::string head = head_of(label, done, total);
  const std::string tail = tail_of(done, total, eta, detail);
  const auto width = static_cast<std::size_t>(std::max(terminal.width - 1, 1));
  const std::size_t text = head.size() + tail.size() + 4;  // " |" and "| "
  if (text + 4 > width) return (head + " " + tail).substr(0, width);
  const std::size_t cells = std::min<std::size_t>(width - text, 40);
  const auto full = static_cast<std::size_t>(static_cast<double>(cells) * static_cast<double>(done) / static_cast<double>(total));
  std::string bar = terminal.colour ? "\x1b[36m" : "";
  for (std::size_t i = 0; i < full; ++i) bar += terminal.colour ? "█" : "#";
  if (terminal.colour) bar += "\x1b[0m";
  return fmt::format("{} |{}{}| {}", head, bar, std::string(cells - full, ' '), tail);
}

Progress::Progress(std::string label, std::uint64_t total, int fd, Seconds plain_interval)
    : Progress(
          std::move(label), total, inspect_terminal(fd), [fd](std::string_view text) { write_all(fd, text); }, steady_seconds,
          plain_interval) {}

Progress::Progress(std::string label, std::uint64_t total, Terminal terminal, std::function<void(std::string_view)> write,
                   Clock clock, Seconds plain_interval)
    : label_(std::move(label)),
      total_(std::max<std::uint64_t>(total, 1)),
      terminal_(terminal),
      write_(std::move(write)),
      clock_(std::move(clock)),
      plain_interval_(plain_interval) {}

Progress::~Progress() { finish(); }

Seconds Progress::time_left(Seconds now) const {
  if (done_ <= first_) return -1;
  return (now - begin_) / static_cast<double>(done_ - first_) * static_cast<double>(total_ - std::min(done_, total_));
}

void Progress::update(std::uint64_t done, std::string_view detail) {
  if (finished_) return;
  const Seconds now = clock_();
  const bool first_call = !started_;
  if (first_call) {
    started_ = true;
    first_ = done;
    begin_ = now;
  }
  done_ = done;
  detail_ = detail;
  const Seconds interval = terminal_.interactive ? kRedraw : plain_interval_;
  if (first_call || now - last_output_ >= interval || done_ >= total_) draw();
}

void Progress::draw() {
  const Seconds now = clock_();
  last_output_ = now;
  printed_ = done_;
  if (terminal_.interactive) {
    write_("\r\x1b[K" + render_bar(label_, done_, total_, time_left(now), detail_, terminal_));
    drawn_ = true;
  } else {
    write_(head_of(label_, std::min(done_, total_), total_) + " " + tail_of(done_, total_, time_left(now), detail_) + "\n");
  }
}

void Progress::note(std::string_view line) {
  std::string text = drawn_ ? "\r\x1b[K" : "";
  text += line;
  text += '\n';
  write_(text);
  if (drawn_ && !finished_) draw();
}

void Progress::finish() {
  if (finished_) return;
  if (started_ && (terminal_.interactive || printed_ != done_)) draw();
  if (drawn_) write_("\n");
  drawn_ = false;
  finished_ = true;
}

}  // namespace wirewise
