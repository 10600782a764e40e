// wirewise topo: the wiring of this machine, or of what a file describes, in the form that is asked for.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/bench_sizes.h"
#include "wirewise/cli/commands.h"
#include "wirewise/cli/notes.h"
#include "wirewise/cli/topo.h"
#include "wirewise/wiring/discover.h"
#include "wirewise/wiring/formats.h"
#include "wirewise/wiring/group_times_json.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

struct Options {
  std::string from, to = "text", bytes, host;
  bool json = false;
};

void run(const Options& options) {
  if (!options.bytes.empty() && options.to != "text" && options.to != "json") throw bad_input("--bytes adds lines to the text, and all_reduce to the JSON.", "Leave it out, or leave --to out.");
  if (options.json && options.to != "text" && options.to != "json") throw bad_input("--json and --to " + options.to + " ask for different forms.", "Give either.");
  if (!options.host.empty() && options.to != "nccl-xml") throw bad_input("--host chooses the host of --to nccl-xml.", "Leave it out, or give --to nccl-xml.");
  const std::vector<Bytes> sizes = options.bytes.empty() ? std::vector<Bytes>{} : bench::parse_sizes(options.bytes, "--bytes");
  if (std::find(sizes.begin(), sizes.end(), Bytes{0}) != sizes.end()) throw bad_input("--bytes 0: nothing takes no time.", "Give sizes of 1 byte or more.");
  const bool here = options.from.empty();
  const Reading reading = here ? discover() : read_wiring_file(options.from);
  print_notes(reading, here ? "this machine" : options.from);
  if (options.json || options.to == "json") {
    std::string text = write_json(reading);
    if (!sizes.empty()) text.insert(text.size() - 1, ",\"all_reduce\":" + group_times_json(reading.wiring, sizes));
    std::cout << text << "\n";
  } else if (options.to == "nccl-xml") {
    const NcclXml xml = write_nccl_xml(reading, options.host);
    std::cout << xml.text;
    for (const std::string& note : xml.notes) std::cerr << "note: " << note << "\n";
  } else if (options.to == "cluster") {
    std::cout << write_cluster(reading);
  } else if (options.to == "svg") {
    std::cout << write_svg(reading.wiring);
  } else if (options.to == "matrix") {
    std::cout << write_matrix(reading.wiring);
  } else {
    const bool without = std::any_of(reading.facts.begin(), reading.facts.end(), [](const Fact& fact) { return fact.name == "NVLinks" && fact.value == "not in the file"; });
    const std::string groups = write_groups(reading.wiring, sizes, without ? "without NVLinks, which the file leaves out" : "");
    if (!sizes.empty() && groups.empty())
      throw bad_input("--bytes: " + std::string(here ? "this machine" : printable(options.from)) + " has no two GPUs that would sum anything.", "Leave it out, or give a wiring that has.");
    std::cout << write_tree(reading.wiring) << groups;
    for (const Fact& fact : reading.facts) std::cout << printable(fact.subject) << "  " << printable(fact.name) << "  " << printable(fact.value) << "\n";
  }
  std::cout << std::flush;
}

}  // namespace

void register_topo(CLI::App& app, int&) {
  CLI::App* topo = app.add_subcommand("topo", "Show how a machine is wired: its GPUs, NICs, PCIe, NVLink and network");
  const auto options = std::make_shared<Options>();
  topo->add_option("--from", options->from, "A file that describes it, - for standard input; its format is recognised. Without it: this machine");
  topo->add_option("--to", options->to, "text, matrix, json, nccl-xml, cluster or svg")
      ->check(CLI::IsMember({"text", "matrix", "json", "nccl-xml", "cluster", "svg"}));
  topo->add_option("--bytes", options->bytes, "Also what an all-reduce of these sizes takes: 1M,64M,1G; ranges as in wirewise bench --sizes");
  topo->add_option("--host", options->host, "The host that --to nccl-xml writes, where there are several");
  topo->add_flag("--json", options->json, "One JSON object on standard output");
  topo->footer("--from reads what these print, of several hosts too where pdsh, clush, srun -l, mpirun or ansible gathered it:\n" + format_list());
  register_topo_links(*topo);
  register_topo_list(*topo);
  topo->callback([topo, options] {
    if (topo->get_subcommands().empty()) run(*options);
  });
}

}  // namespace wirewise
