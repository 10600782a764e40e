// How ranks end, and which of several endings is the cause of the others.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

namespace wirewise {

struct RankExit {
  int rank = 0;
  pid_t pid = 0;
  bool signalled = false;  // killed by signal `value`; else `value` is the exit code
  int value = 0;
  bool told_to_end = false;             // the launcher had told this rank to end before it did
  bool stop_forwarded = false;          // a stop that came from outside had been passed on to the rank
  std::vector<std::string> last_lines;  // of its standard error, where the launcher saw it
};

/// In rising order of how much it explains.
enum class ExitClass {
  kDone,     // 0
  kEnded,    // by the launcher's own signal, after another rank's failure
  kStopped,  // 130 or 143: stopped by a signal after saving, or by the signal itself
  kRetry,    // 75: this rank lost a peer, or a deadline passed
  kFailed,   // all else
};
[[nodiscard]] ExitClass classify(const RankExit& exit) noexcept;

/// The contract's exit code of a rank: its own, or 128 + n for signal n.
[[nodiscard]] int exit_code(const RankExit& exit) noexcept;

/// The ending that explains the others: the first, in the order given (that of time), of the class that explains most. Null when
/// all are done.
[[nodiscard]] const RankExit* first_cause(std::span<const RankExit> exits) noexcept;

/// Whether starting all ranks again may help: exit 75, or death by a signal (also as a shell reports it, 128 + n), but never a
/// stop.
[[nodiscard]] bool worth_restart(const RankExit& exit) noexcept;

/// "rank 1 (pid 4242 on node7) was killed by signal 9 (SIGKILL), as the kernel does when memory runs out."
[[nodiscard]] std::string describe(const RankExit& exit, const std::string& host);

}  // namespace wirewise
