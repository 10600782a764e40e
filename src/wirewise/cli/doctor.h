// `wirewise doctor`: what is wrong, as findings. Each subject (flight records, NCCL logs, a cluster, this machine) stands in a file of its
// own, returns findings, and registers itself under the command.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace wirewise {

enum class Severity : std::uint8_t { kError, kWarning, kInfo };
[[nodiscard]] std::string_view name_of(Severity severity) noexcept;

/// What was found, how one can tell, and what to do about it. Texts may quote files: they are escaped when printed.
struct Finding {
  Severity severity = Severity::kInfo;
  std::string title;
  std::string evidence;
  std::string remedy;
};

/// Worst first; the order among equals is kept.
void sort_findings(std::vector<Finding>& findings);
/// To standard output: one line {"findings": […]}, or a paragraph each for people, `nothing` where there are none.
void print_findings(const std::vector<Finding>& findings, bool json, std::string_view nothing);

/// 1 where there is an error among them, else 0: what `wirewise doctor` of a machine or a log exits with.
[[nodiscard]] int exit_code_of(const std::vector<Finding>& findings) noexcept;

/// Each adds its own subcommand to `doctor`.
void register_doctor_flight(CLI::App& doctor, int& exit);
void register_doctor_cluster(CLI::App& doctor, int& exit);
void register_doctor_nccl(CLI::App& doctor, int& exit);

}  // namespace wirewise
