#include "wirewise/cli/doctor.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "wirewise/base/error.h"
#include "wirewise/base/terminal.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/commands.h"
#include "wirewise/cli/doctor_machine.h"

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

int exit_code_of(const std::vector<Finding>& findings) noexcept {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.severity == Severity::kError; }) ? 1 : 0;
}

void register_doctor(CLI::App& app, int& exit) {
  CLI::App* doctor = app.add_subcommand("doctor", "Say what is wrong: with this machine, or in what a run left behind");
  doctor->require_subcommand(0, 1);
  doctor->footer("Exits with 1 where an error is found, with 0 where there are only warnings and information.");
  struct Arguments {
    std::string from;
    int ranks = 0;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  doctor->add_option("--from", arguments->from, "Check the wiring that a file describes, in place of this machine");
  doctor->add_option("--ranks", arguments->ranks, "How many ranks are meant to run on this machine")->check(CLI::Range(1, 1 << 16));
  doctor->add_flag("--json", arguments->json, "One line of JSON");
  register_doctor_flight(*doctor, exit);
  register_doctor_cluster(*doctor, exit);
  register_doctor_nccl(*doctor, exit);
  doctor->parse_complete_callback([doctor, arguments] {
    if (doctor->get_subcommands().empty() || (arguments->from.empty() && arguments->ranks == 0 && !arguments->json)) return;
    const std::string subject = doctor->get_subcommands().front()->get_name();
    throw bad_input("--from, --ranks and --json before " + subject + " are for the machine.", "Give the options of wirewise doctor " + subject + " after its name.");
  });
  doctor->callback([doctor, arguments, &exit] {
    if (!doctor->get_subcommands().empty()) return;
    if (!arguments->from.empty() && arguments->ranks > 0) throw bad_input("--ranks is for this machine, and --from checks a file.", "Leave one out.");
    std::vector<Finding> findings;
    if (arguments->from.empty()) {
      findings = diagnose_machine(gather_machine_facts({}, arguments->ranks));
    } else {
      const Reading reading = read_wiring_file(arguments->from);
      findings = check_reading(reading, arguments->from);
    }
    print_findings(findings, arguments->json, "Nothing found that is wrong.");
    exit = exit_code_of(findings);
  });
}

}  // namespace wirewise
