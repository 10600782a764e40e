#include "wirewise/cli/doctor.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "wirewise/base/error.h"
#include "wirewise/base/terminal.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/commands.h"

namespace wirewise {

std::string_view name_of(Severity severity) noexcept {
  switch (severity) {
    case Severity::kError: return "error";
    case Severity::kWarning: return "warning";
    case Severity::kInfo: return "info";
  }
  return "unknown";
}

void sort_findings(std::vector<Finding>& findings) {
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
}

void print_findings(const std::vector<Finding>& findings, bool json, std::string_view nothing) {
  using Json = nlohmann::ordered_json;
  if (json) {
    Json list = Json::array();
    for (const Finding& finding : findings) {
      list.push_back({{"severity", name_of(finding.severity)}, {"title", finding.title}, {"evidence", finding.evidence}, {"remedy", finding.remedy}});
    }
    std::cout << Json{{"findings", std::move(list)}}.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
    return;
  }
  const bool colour = inspect_terminal(1).colour;
  if (findings.empty()) std::cout << nothing << "\n";
  for (const Finding& finding : findings) {
    const char* const start = !colour ? "" : finding.severity == Severity::kError ? "\x1b[1;31m" : finding.severity == Severity::kWarning ? "\x1b[1;33m" : "\x1b[1m";
    std::cout << start << name_of(finding.severity) << (colour ? ":\x1b[0m " : ": ") << printable(finding.title) << "\n";
    if (!finding.evidence.empty()) std::cout << "  " << printable(finding.evidence) << "\n";
    if (!finding.remedy.empty()) std::cout << "  " << printable(finding.remedy) << "\n";
  }
  std::cout << std::flush;
}

void register_doctor(CLI::App& app, int& exit) {
  CLI::App* doctor = app.add_subcommand("doctor", "Say what is wrong: flight records of a run that failed");
  doctor->require_subcommand(0, 1);
  register_doctor_flight(*doctor, exit);
  register_doctor_cluster(*doctor, exit);
  doctor->callback([doctor] {
    if (!doctor->get_subcommands().empty()) return;
    throw bad_input("wirewise doctor needs a subject.", "Name one: wirewise doctor flight DIR.");
  });
}

}  // namespace wirewise
