// Starts ranks as processes of this host and watches over them: the code under `wirewise launch` and `wirewise train --ranks N`.
#pragma once

#include <string>
#include <vector>

#include "wirewise/base/units.h"

namespace wirewise {

struct LaunchOptions {
  std::vector<std::string> command;
  int ranks = 1;        // on all hosts
  int local_ranks = 1;  // on this host
  int nodes = 1;
  int node = 0;
  std::string master_addr;  // empty: 127.0.0.1, right for one host only
  int master_port = 0;      // 0: a free one, on one host only
  int max_restarts = 0;
  bool bind = false;  // each rank on its own share of the cores
  Seconds grace = 5;  // from SIGTERM to SIGKILL, when another rank failed
  // Of a launcher that another one started on this host:
  int orders = -1;   // descriptor of what it is asked for (launch_orders.h); -1: none
  int restarts = 0;  // times all ranks have been started before
};

/// Throws bad input for options that contradict each other.
void check(const LaunchOptions& options);

/// Runs the command once for each local rank, with torchrun's variables, and returns the exit code of the whole:
/// 0 when all ranks return 0; else that of the rank whose ending explains the others (128 + n for signal n), which is reported on
/// standard error with its host, pid and last lines. The others are ended.
///
/// SIGINT, SIGTERM, SIGUSR1 and SIGHUP (as SIGTERM) are passed to the ranks once, and their endings awaited; a second SIGINT
/// kills. Blocks these signals in the calling thread, which must be the process's only one. On one host WIREWISE_STORE names a
/// private folder in which ranks meet without a TCP port. After exit code 75 or death by a signal all ranks start again, up to
/// max_restarts times, with WIREWISE_RESTART=1. Throws bad input for options that contradict each other, a port that is taken, a
/// command that can't be run.
[[nodiscard]] int launch(const LaunchOptions& options);

/// Where this program lies, to be started again as a rank. Throws where the system doesn't tell.
[[nodiscard]] std::string own_program();

}  // namespace wirewise
