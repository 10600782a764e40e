// One rank as a child process (or the launcher of another host's): its variables, its place on the cores, and what it prints.
#pragma once

#include <sys/types.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "wirewise/comm/unique_fd.h"

namespace wirewise {

/// Variables to set (or, empty, to remove) over those of this process.
using VariableChanges = std::map<std::string, std::string>;

struct RankStart {
  int rank = 0;
  std::vector<std::string> command;
  VariableChanges variables;
  std::vector<int> cpus;  // the rank runs on these; empty: as this process
  int memory_node = -1;   // NUMA node whose memory it prefers; -1: as this process
  bool launcher = false;  // not a rank but the launcher of host number `rank`: asked over its input, its lines carry their ranks already
};

/// What the launcher forwards of one stream, and remembers of its end.
class RankStream {
 public:
  /// Bytes pass as they come, or line by line behind a prefix. All goes to standard error.
  RankStream(int fd, std::string prefix, bool as_they_come);
  ~RankStream();
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Forwards what can be read without waiting; closes at the end of the stream.
  void forward();
  /// Forwards an unfinished last line and closes.
  void finish();
  [[nodiscard]] std::vector<std::string> last_lines() const;

 private:
  void take(const std::string& bytes);
  void end_line();
  int fd_;
  std::string prefix_;
  bool as_they_come_;
  std::string line_;
  std::deque<std::string> last_;
};

class RankProcess {
 public:
  /// Starts the command in a process group of its own, with /dev/null as input, and with orders to die when this process does.
  /// Output of rank 0 passes through as it is; that of others goes to standard error, each line prefixed with its rank. Throws
  /// bad input when the command can't be run.
  explicit RankProcess(const RankStart& start);
  /// Kills what still runs.
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] bool running() const noexcept { return running_; }
  /// Signals the rank and all that it started in its group. A launcher is asked to pass the signal on, and killed by SIGKILL: it then
  /// hears no more and ends its ranks.
  void signal(int number) const noexcept;
  /// Asks for the end, after others have failed.
  void end() const noexcept;
  /// True when the rank has ended: `signalled` and `value` then say how. What it left behind in its group is killed.
  [[nodiscard]] bool reap(bool& signalled, int& value);
  [[nodiscard]] std::deque<RankStream>& streams() noexcept { return streams_; }
  [[nodiscard]] std::vector<std::string> last_lines() const;

 private:
  int rank_;
  pid_t pid_ = -1;
  bool running_ = false;
  comm::UniqueFd orders_;  // a launcher's input
  std::deque<RankStream> streams_;  // standard error last
  bool sees_stderr_ = false;
};

}  // namespace wirewise
