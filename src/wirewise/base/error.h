// The one error type. Every failure a person can meet is a kind, a sentence and a remedy; the kind decides the exit code.
#pragma once

#include <stdexcept>
#include <string>

namespace wirewise {

enum class ErrorKind {
  kBadInput,  // the user's input can't work: exit 2
  kFailed,    // something broke that a retry won't mend: exit 1
  kMismatch,  // ranks disagree on what they call: exit 1
  kPeerLost,  // a rank died: exit 75, worth a retry
  kTimeout,   // a deadline passed: exit 75
  kStore,     // rendezvous or store unreachable: exit 75
  kAborted,   // the communicator was aborted by its owner: exit 1
};

/// A failure with what happened, and what to do about it.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string sentence, std::string remedy = {})
      : std::runtime_error(remedy.empty() ? sentence : sentence + " " + remedy),
        kind_(kind),
        sentence_(std::move(sentence)),
        remedy_(std::move(remedy)) {}

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::string& sentence() const noexcept { return sentence_; }
  [[nodiscard]] const std::string& remedy() const noexcept { return remedy_; }

 private:
  ErrorKind kind_;
  std::string sentence_;
  std::string remedy_;
};

/// Exit codes as in the contract: 2 bad input, 75 worth a retry, 1 failed.
[[nodiscard]] constexpr int exit_code(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::kBadInput: return 2;
    case ErrorKind::kPeerLost:
    case ErrorKind::kTimeout:
    case ErrorKind::kStore: return 75;
    case ErrorKind::kFailed:
    case ErrorKind::kMismatch:
    case ErrorKind::kAborted: return 1;
  }
  return 1;
}

[[nodiscard]] inline Error bad_input(std::string sentence, std::string remedy = {}) {
  return Error(ErrorKind::kBadInput, std::move(sentence), std::move(remedy));
}

}  // namespace wirewise
