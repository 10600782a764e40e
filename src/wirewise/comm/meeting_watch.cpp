#include "wirewise/comm/meeting_watch.h"

#include <algorithm>
#include <charconv>
#include <thread>

namespace wirewise::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{100};
constexpr std::chrono::milliseconds kDeathGrace{200};  // who ends with an error has left it in the store, and that counts
constexpr std::chrono::milliseconds kSearchTime{1500};  // in which another rank that notices a death has told of it
constexpr std::chrono::seconds kReadTime{5};

/// A kind's number, the sentence and the remedy, a line each.
std::string written(const Error& error, const std::string& who) {
  const auto line = [](std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  };
  // What is wrong with a rank itself is that rank's; of a death it is the dead rank that matters.
  const std::string whose = error.kind() == ErrorKind::kPeerLost ? "" : who + " failed: ";
  return std::to_string(static_cast<int>(error.kind())) + "\n" + line(whose + error.sentence()) + "\n" + line(error.remedy());
}

Error read(const std::string& text) {
  const std::size_t first = std::min(text.size(), text.find('\n'));
  const std::size_t second = std::min(text.size(), text.find('\n', first + 1));
  int kind = static_cast<int>(ErrorKind::kFailed);
  std::from_chars(text.data(), text.data() + first, kind);
  if (kind < 0 || kind > static_cast<int>(ErrorKind::kAborted)) kind = static_cast<int>(ErrorKind::kFailed);
  const auto part = [&](std::size_t begin, std::size_t end) { return begin < end ? text.substr(begin, end - begin) : std::string(); };
  return Error(static_cast<ErrorKind>(kind), part(first + 1, second), part(second + 1, text.size()));
}

}  // namespace

void MeetingWatch::watch(const Link& link, const Cards& cards, const std::vector<int>& members) {
  liveness_ = link.liveness;
  for (const int member : members) neighbours_.push_back(cards.who(member));
}

std::optional<Error> MeetingWatch::left_by_others() {
  if (store_->add("failed/" + key_, 0) == 0) return std::nullopt;
  return read(store_->get("failure/" + key_, kReadTime));
}

void MeetingWatch::look_after() {
  const auto now = Clock::now();
  if (connected_ || now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  if (const auto error = left_by_others()) throw *error;
  const std::vector<int> dead = liveness_ ? liveness_->dead() : std::vector<int>{};
  if (dead.empty()) return;
  if (!ended_) ended_ = now;
  if (now - *ended_ < kDeathGrace) return;
  throw Error(ErrorKind::kPeerLost,
              "rendezvous: " + neighbours_[static_cast<std::size_t>(dead.front())] + " died while the ranks of " + name_ + " met.",
              "Look at that rank's own output and the kernel log.");
}

std::optional<Error> MeetingWatch::verdict(const Error& found) {
  try {
    if (const auto error = left_by_others()) return error;
  } catch (const Error&) {
    // A store that is gone by now has nothing to tell.
  }
  return found;
}

Error MeetingWatch::first_cause(const Error& found) noexcept {
  // Only what can be a consequence of another rank's end.
  if (connected_ || (found.kind() != ErrorKind::kPeerLost && found.kind() != ErrorKind::kFailed)) return found;
  try {
    for (const auto end = Clock::now() + kSearchTime; Clock::now() < end; std::this_thread::sleep_for(kBetweenLooks / 5)) look_after();
  } catch (const Error& first) {
    return first.kind() == ErrorKind::kStore ? found : first;
  } catch (...) {
    // No memory for the search: what was found counts.
  }
  return found;
}

void MeetingWatch::leave(const Error& error) noexcept {
  if (error.kind() == ErrorKind::kTimeout) return;  // the others have deadlines of their own, and know better whom they wait for
  try {
    // The text first: who sees that there is one can read it.
    if (store_->add("failing/" + key_, 1) != 1) return;
    store_->set("failure/" + key_, written(error, self_));
    store_->add("failed/" + key_, 1);
  } catch (...) {
    // The store is lost, which the others notice as this rank does.
  }
}

}  // namespace wirewise::comm
