// A placement in the words of those who start ranks. Pure text: names from descriptions stay data, whatever characters they hold; a format
// that can't carry a name refuses it, naming it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/plan/rank_places.h"

namespace wirewise {

/// A word of a POSIX shell: in single quotes.
[[nodiscard]] std::string shell_word(std::string_view text);
/// A string of YAML or JSON: in double quotes. Throws bad input for text that isn't UTF-8.
[[nodiscard]] std::string json_string(std::string_view text);
/// Throws bad input unless `host` is a plain host name: letters, digits, '.', '-', '_'. `format` says who can't take it.
void require_plain_host(std::string_view host, std::string_view format);

/// A shell script to run on every host, before its own arguments: torchrun with this host's number and GPUs. Throws bad input where hosts
/// hold unequally many ranks, or not consecutive ones: torchrun numbers ranks by host.
[[nodiscard]] std::string emit_torchrun(std::span<const RankPlace> places);

/// A shell script around `srun`: the host file of arbitrary distribution, and --switches. `switches`: leaf switches that the ranks use; 0: not known.
[[nodiscard]] std::string emit_slurm(std::span<const RankPlace> places, int switches);
/// The host file alone: a host a rank.
[[nodiscard]] std::string emit_slurm_hostfile(std::span<const RankPlace> places);

/// An Open MPI rankfile (mpirun --rankfile).
[[nodiscard]] std::string emit_rankfile(std::span<const RankPlace> places);

/// A shell script that a launcher starts for each rank: sets the rank's GPU, NICs and CPUs, then becomes its arguments.
[[nodiscard]] std::string emit_env(std::span<const RankPlace> places);

/// What a JobSet needs besides the placement.
struct JobsetOptions {
  std::string name = "wirewise";
  std::string queue = "default";  // Kueue's LocalQueue
  std::string image = "pytorch/pytorch:latest";
  std::string level = "cloud.provider.com/topology-rack";  // the node label that names a leaf switch or rack
  std::vector<int> leaf_of_node;  // of each host, by number; empty: not known
};
/// A Kubernetes JobSet with a pod a host, and Kueue's topology annotations: required where one leaf holds all hosts, else slices of equal
/// size, else preferred.
[[nodiscard]] std::string emit_jobset(std::span<const RankPlace> places, const JobsetOptions& options);

}  // namespace wirewise
