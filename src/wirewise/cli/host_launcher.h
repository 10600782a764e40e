// `wirewise launch --hosts FILE`: a launcher on each host, started through ssh from one place, watched and ended as ranks are.
#pragma once

#include <string>
#include <vector>

#include "wirewise/cli/launcher.h"

namespace wirewise {

/// Runs `wirewise launch` on each of `hosts` (as ssh takes them), in this folder, with options' local_ranks ranks each: the same program
/// and folder must be there. WIREWISE_RSH names another command than ssh, its words followed by the host and one command line for a shell.
/// Variables that begin with WIREWISE_, UCX_, NCCL_, GLOO_, OMP_NUM_THREADS and those named in `passed` go along. Without a master
/// address all meet at the first host's name, without a port at one chosen at random.
///
/// The exit code is that of the host whose ending explains the others. When one fails, or this process ends, however, the others end too.
/// Signals are passed on as on one host. Throws bad input as launch() does.
[[nodiscard]] int launch_on_hosts(LaunchOptions options, const std::vector<std::string>& hosts, const std::vector<std::string>& passed);

/// `word` as a POSIX shell reads it back.
[[nodiscard]] std::string shell_quoted(const std::string& word);

}  // namespace wirewise
