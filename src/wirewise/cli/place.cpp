// wirewise place: the ranks of a mesh onto a cluster's devices, why so, and what launchers need to put them there.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "wirewise/base/error.h"
#include "wirewise/base/nearest.h"
#include "wirewise/base/node_list.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/commands.h"
#include "wirewise/cli/notes.h"
#include "wirewise/cli/place_traffic.h"
#include "wirewise/plan/emit.h"
#include "wirewise/plan/placement_traffic.h"
#include "wirewise/wiring/cluster_file.h"
#include "wirewise/wiring/discover.h"
#include "wirewise/wiring/placement.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

struct Options {
  std::string cluster, from, mesh, traffic, exclude, emit, config, model, order = "best";
  std::vector<std::string> overrides;
  int nodes = 0, ranks = 0;
  std::optional<int> zero;
  bool json = false;
  JobsetOptions jobset;
};

Reading reading_of(const Options& options) {
  if (!options.cluster.empty() && !options.from.empty()) throw bad_input("--cluster and --from both say where the wiring is.", "Give either.");
  const std::string& file = options.cluster.empty() ? options.from : options.cluster;
  if (file.empty()) return discover();
  if (auto shipped = read_shipped(file)) return std::move(*shipped);
  return read_wiring_file(file);
}

/// Names with commas between them, or as Slurm writes them: node[001-004,7].
std::vector<std::string> left_out(const std::string& text) {
  std::vector<std::string> names;
  if (const auto fault = expand_node_list(text, names)) {
    throw bad_input("--exclude " + printable(text) + ": " + fault->what + ", at column " + std::to_string(fault->offset + 1) + ".", "Write node3,node7 or node[3-7].");
  }
  return names;
}

/// The devices of all hosts but those that are taken out.
std::vector<int> free_devices(const Wiring& wiring, const std::string& exclude) {
  std::map<std::string, int> hosts;
  std::vector<std::string> names;
  for (const int host : devices_of(wiring, DeviceKind::kHost)) {
    const Device& device = wiring.devices[static_cast<std::size_t>(host)];
    hosts[device.name] = device.host;
    names.push_back(device.name);
  }
  std::set<int> out;
  for (const std::string& name : left_out(exclude)) {
    const auto found = hosts.find(name);
    if (found == hosts.end()) {
      const auto guess = nearest(name, names);
      throw bad_input("there is no host " + printable(name) + " to leave out.", guess ? "Did you mean " + printable(*guess) + "?" : "");
    }
    out.insert(found->second);
  }
  std::vector<int> devices;
  for (const DeviceKind kind : {DeviceKind::kGpu, DeviceKind::kCpu}) {
    if (!devices.empty()) break;
    for (const int device : devices_of(wiring, kind)) {
      if (out.count(wiring.devices[static_cast<std::size_t>(device)].host) == 0) devices.push_back(device);
    }
  }
  if (devices.empty() && !out.empty() && out.size() == names.size()) throw bad_input("--exclude leaves out all hosts: no GPUs are left to put ranks on.", "Leave fewer out.");
  if (devices.empty() && !out.empty() && !(devices_of(wiring, DeviceKind::kGpu).empty() && devices_of(wiring, DeviceKind::kCpu).empty())) {
    throw bad_input("--exclude leaves out all hosts that have GPUs.", "Leave fewer out.");
  }
  if (devices.empty() && names.empty()) throw bad_input("this wiring has no hosts to put ranks on.", "Give one that has, with --cluster or --from; hosts that a description takes out don't count.");
  if (devices.empty()) throw bad_input("this wiring has no GPUs to put ranks on.", "Give one that has, with --cluster or --from.");
  return devices;
}

std::map<std::string, double> given_traffic(const std::string& text) {
  std::map<std::string, double> given;
  for (const std::string& word : split(text, ',')) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) throw bad_input("--traffic " + printable(word) + " names no size.", "Write tp=10G,dp=1G: bytes that a rank sends in a step.");
    std::string name = word.substr(0, equals);
    if (name == "dp") name = "dp_shard";
    const auto size = static_cast<double>(parse_size(std::string_view(word).substr(equals + 1)));
    if (!given.emplace(name, size).second) throw bad_input("--traffic says " + printable(name) + " twice.", "Give it once.");
  }
  return given;
}

/// The leaf of each host, by one of its switches: those that a host is plugged into, as its rails are, count as one. Empty where there are none.
std::vector<int> leaves(const Wiring& wiring, const std::vector<RankPlace>& places) {
  std::map<int, int> joined;  // a switch, and one that is the same leaf
  const auto first_of = [&](int leaf) {
    while (joined.at(leaf) != leaf) leaf = joined.at(leaf);
    return leaf;
  };
  std::map<std::string, int> leaf_of_host;
  const auto itself = devices_by_host(wiring, DeviceKind::kHost);
  for (const Link& link : wiring.links) {
    const Device& from = wiring.devices[static_cast<std::size_t>(link.from)];
    if (from.host < 0 || wiring.devices[static_cast<std::size_t>(link.to)].kind != DeviceKind::kSwitch) continue;
    joined.try_emplace(link.to, link.to);
    for (const int host : itself[static_cast<std::size_t>(from.host)]) {
      const int known = leaf_of_host.try_emplace(wiring.devices[static_cast<std::size_t>(host)].name, link.to).first->second;
      joined[first_of(link.to)] = first_of(known);
    }
  }
  for (auto& [host, leaf] : leaf_of_host) leaf = first_of(leaf);
  std::vector<int> of_node;
  for (const RankPlace& place : places) {
    const auto found = leaf_of_host.find(place.host);
    if (found == leaf_of_host.end()) return {};
    if (place.node == static_cast<int>(of_node.size())) of_node.push_back(found->second);
  }
  return of_node;
}

/// How many ranks so many hosts can hold each, if all hold equally many.
int each_of(const std::map<int, int>& devices_on_host, int nodes) {
  if (static_cast<std::size_t>(nodes) > devices_on_host.size()) {
    throw bad_input("--nodes " + std::to_string(nodes) + ": only " + std::to_string(devices_on_host.size()) + " hosts have free devices.", "Use fewer.");
  }
  std::vector<int> counts;
  for (const auto& [host, count] : devices_on_host) counts.push_back(count);
  std::sort(counts.begin(), counts.end(), std::greater<>());
  return counts[static_cast<std::size_t>(nodes) - 1];
}

/// What the mesh sends: of a training configuration, or of a transformer of common size.
StepTraffic traffic_of(const Options& options, const Wiring& wiring, const std::vector<int>& devices) {
  const std::map<std::string, double> given = given_traffic(options.traffic);
  const bool configured = !options.config.empty() || !options.model.empty() || !options.overrides.empty();
  if (!configured) {
    if (options.mesh.empty()) throw bad_input("nothing says which ranks there are.", "Give --mesh pp=2,dp=8,tp=8, or a training configuration with --config.");
    if (options.ranks > 0) throw bad_input("--ranks goes with --config or --model; --mesh says by itself how many ranks there are.", "Leave it out.");
    Strategy mesh = parse_mesh(options.mesh);
    mesh.zero = options.zero.value_or(3);
    StepTraffic step{placement_traffic(mesh, TransformerStep{}, given), {}};
    for (const TrafficPhase& phase : step.traffic.phases) step.from[phase.name] = given.contains(phase.name) ? "--traffic" : "a transformer of 7 billion parameters";
    return step;
  }
  if (options.zero) throw bad_input("--zero and a training configuration both say the stage of ZeRO.", "Set it with --set strategy.zero=" + std::to_string(*options.zero) + ".");
  if (options.ranks > 0 && !options.mesh.empty()) throw bad_input("--ranks and --mesh both say how many ranks there are.", "Leave --ranks out.");
  std::map<int, int> on_host;
  for (const int device : devices) ++on_host[wiring.devices[static_cast<std::size_t>(device)].host];
  PlacedOn on;
  on.devices = options.ranks > 0 ? options.ranks : options.nodes > 0 ? options.nodes * each_of(on_host, options.nodes) : static_cast<int>(devices.size());
  on.hosts = options.nodes > 0 ? options.nodes : static_cast<int>(on_host.size());
  on.gpus = wiring.devices[static_cast<std::size_t>(devices.front())].kind == DeviceKind::kGpu;
  PlacedStep step{options.config, {}, options.mesh, given};
  if (!options.model.empty()) step.overrides.push_back("model.preset=" + options.model);
  step.overrides.insert(step.overrides.end(), options.overrides.begin(), options.overrides.end());
  return step_traffic(step, on);
}

nlohmann::json traffic_json(const StepTraffic& step) {
  nlohmann::json phases = nlohmann::json::array();
  for (const TrafficPhase& phase : step.traffic.phases) phases.push_back({{"name", phase.name}, {"bytes", phase.bytes}, {"from", step.from.at(phase.name)}});
  return phases;
}

nlohmann::json phases_json(const CommunicationTime& time) {
  nlohmann::json phases = nlohmann::json::array();
  for (const PhaseTime& phase : time.phases) phases.push_back({{"name", phase.name}, {"seconds", phase.seconds}, {"limited_by", phase.where}});
  return phases;
}

std::string to_json(const Placement& placement, const std::vector<RankPlace>& places, const StepTraffic& step) {
  nlohmann::json ranks = nlohmann::json::array();
  for (const RankPlace& place : places) {
    nlohmann::json rank{{"rank", place.rank}, {"host", place.host}, {"local_rank", place.local_rank}, {"device", place.device}};
    if (place.gpu >= 0) rank["gpu"] = place.gpu;
    if (place.numa >= 0) rank["numa"] = place.numa;
    if (!place.cpus.empty()) rank["cpus"] = place.cpus;
    rank["nics"] = place.rdma_nics;
    rank["interfaces"] = place.interfaces;
    ranks.push_back(std::move(rank));
  }
  const nlohmann::json all{{"ranks", std::move(ranks)},
                           {"traffic", traffic_json(step)},
                           {"communication_s", placement.time.seconds},
                           {"linear_s", placement.linear.seconds},
                           {"random_s", placement.random.seconds},
                           {"phases", phases_json(placement.time)},
                           {"exact", placement.exact},
                           {"why", placement.why}};
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Consecutive ranks and GPUs in short: "0-7".
std::string numbers(const std::vector<int>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size();) {
    std::size_t last = i;
    while (last + 1 < values.size() && values[last + 1] == values[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(values[i]) + (last > i ? "-" + std::to_string(values[last]) : "");
    i = last + 1;
  }
  return text;
}

void print(const Placement& placement, const std::vector<RankPlace>& places, const StepTraffic& step) {
  struct Host {
    std::vector<int> ranks, gpus;
    std::string devices;
  };
  std::map<int, Host> hosts;
  std::map<int, std::string> names;
  for (const RankPlace& place : places) {
    Host& host = hosts[place.node];
    host.ranks.push_back(place.rank);
    host.gpus.push_back(place.gpu);
    host.devices += (host.devices.empty() ? "" : ",") + place.device;
    names[place.node] = place.host;
  }
  for (const auto& [node, host] : hosts) {
    const bool gpus = std::find(host.gpus.begin(), host.gpus.end(), -1) == host.gpus.end();
    std::cout << fmt::format("{:<16} ranks {}  {}\n", printable(names[node]), numbers(host.ranks), gpus ? "GPUs " + numbers(host.gpus) : printable(host.devices));
  }
  std::cout << "\n";
  const auto against = [&](const CommunicationTime& other) {
    if (std::isinf(other.seconds)) return std::string("never ends: no links join some of its devices");
    if (!(placement.time.seconds > 0)) return format_seconds(other.seconds);
    return fmt::format("{} ({:.2f} times as long)", format_seconds(other.seconds), other.seconds / placement.time.seconds);
  };
  for (const TrafficPhase& phase : step.traffic.phases) {
    std::cout << fmt::format("a rank sends in a step, {}: {:.3g} GB (of {})\n", phase.name, phase.bytes / 1e9, step.from.at(phase.name));
  }
  std::cout << "communication of a step, as modelled: " << format_seconds(placement.time.seconds) << (placement.exact ? " (no placement is faster)" : "") << "\n"
            << "  in the order of the devices:        " << against(placement.linear) << "\n"
            << "  in random order (median):           " << against(placement.random) << "\n";
  for (const std::string& line : placement.why) std::cout << "  " << printable(line) << "\n";
}

/// Options that would be taken and not done.
void refuse_idle(const Options& options, const CLI::App& command) {
  if (options.json && !options.emit.empty() && options.emit != "json") throw bad_input("--json and --emit " + options.emit + " ask for different forms.", "Give either.");
  for (const char* name : {"--jobset-name", "--queue", "--image", "--topology-level"}) {
    if (command.count(name) > 0 && (options.json || options.emit != "jobset")) throw bad_input(std::string(name) + " goes with --emit jobset.", "Leave it out, or emit a JobSet.");
  }
}

/// Ranks in the order of the devices, for launchers that number ranks host by host.
void order_linearly(Placement& placement, const std::vector<int>& devices, const StepTraffic& step) {
  const Seconds best = placement.time.seconds;
  placement.device.assign(devices.begin(), devices.begin() + step.traffic.ranks);
  placement.time = placement.linear;
  placement.exact = false;
  placement.why.clear();
  for (const PhaseTime& phase : placement.time.phases) {
    if (phase.seconds > 0) placement.why.push_back(phase.name + ": " + format_seconds(phase.seconds) + (phase.where.empty() ? "" : ", limited by " + phase.where));
  }
  placement.why.push_back("in the order of the devices, as --order linear asks; the best order takes " + format_seconds(best));
}

void run(const Options& options) {
  if (options.order == "linear" && options.nodes > 0) throw bad_input("--order linear takes the devices as they come, and --nodes chooses among hosts.", "Leave either out; --exclude takes hosts out.");
  const Reading reading = reading_of(options);
  print_notes(reading, !options.cluster.empty() ? options.cluster : !options.from.empty() ? options.from : "this machine");
  const Wiring& wiring = reading.wiring;
  PlacementOptions how;
  how.devices = free_devices(wiring, options.exclude);
  how.nodes = options.nodes;
  const StepTraffic step = traffic_of(options, wiring, how.devices);
  Placement placement = place(wiring, step.traffic, how);
  if (options.order == "linear") order_linearly(placement, how.devices, step);
  const std::vector<RankPlace> places = rank_places(wiring, placement.device);
  if (options.emit.empty() && !options.json) {
    print(placement, places, step);
  } else if (options.json || options.emit == "json") {
    std::cout << to_json(placement, places, step) << "\n";
  } else if (options.emit == "torchrun") {
    std::cout << emit_torchrun(places);
  } else if (options.emit == "slurm") {
    const std::vector<int> of_node = leaves(wiring, places);
    std::cout << emit_slurm(places, static_cast<int>(std::set<int>(of_node.begin(), of_node.end()).size()));
  } else if (options.emit == "slurm-hostfile") {
    std::cout << emit_slurm_hostfile(places);
  } else if (options.emit == "rankfile") {
    std::cout << emit_rankfile(places);
  } else if (options.emit == "env") {
    std::cout << emit_env(places);
  } else {
    JobsetOptions jobset = options.jobset;
    jobset.leaf_of_node = leaves(wiring, places);
    std::cout << emit_jobset(places, jobset);
  }
  std::cout << std::flush;
}

}  // namespace

void register_place(CLI::App& app, int&) {
  CLI::App* place = app.add_subcommand("place", "Put the ranks of a mesh onto a cluster's devices, the heaviest traffic on the shortest wire");
  const auto options = std::make_shared<Options>();
  place->add_option("--cluster", options->cluster, "The cluster: a description's file, or the name of one that wirewise brings along");
  place->add_option("--from", options->from, "A file that describes the machine; its format is recognised. Without either: this machine");
  place->add_option("--mesh", options->mesh, "Degrees: pp=2,dp=8,tp=8 (also dp_replicate, dp_shard, cp, ep)");
  place->add_option("--config", options->config, "A configuration of wirewise train: traffic is that of its step, and without --mesh the degrees are its own");
  place->add_option("--model", options->model, "A published model by name, as model.preset in a configuration: llama-3-8b");
  place->add_option("--set", options->overrides, "key=value over the configuration, repeatable")->take_all();
  place->add_option("--ranks", options->ranks, "With --config and without --mesh: how many ranks; otherwise one on every free device")->check(CLI::Range(1, 1 << 20));
  place->add_option("--nodes", options->nodes, "Hosts to use, equally many ranks on each; without it as comes out best")->check(CLI::PositiveNumber);
  place->add_option("--exclude", options->exclude, "Hosts to leave out: node3,node7 or node[3-7]");
  place->add_option("--traffic", options->traffic, "Bytes that a rank sends in a step, by degree: tp=10G,dp=1G; the others as the configuration's, else as a transformer of 7 billion parameters");
  place->add_option("--zero", options->zero, "Stage of ZeRO over dp_shard, for its traffic, where no configuration says it (3)")->check(CLI::Range(0, 3));
  place->add_option("--order", options->order, "best, or linear: in the order of the devices, as torchrun and JobSets number ranks")->check(CLI::IsMember({"best", "linear"}));
  place->add_option("--emit", options->emit, "torchrun, slurm, slurm-hostfile, rankfile, jobset, env or json")
      ->check(CLI::IsMember({"torchrun", "slurm", "slurm-hostfile", "rankfile", "jobset", "env", "json"}));
  place->add_option("--jobset-name", options->jobset.name, "Name of the JobSet");
  place->add_option("--queue", options->jobset.queue, "Kueue's LocalQueue");
  place->add_option("--image", options->jobset.image, "The containers' image");
  place->add_option("--topology-level", options->jobset.level, "The node label that names a leaf switch or rack");
  place->add_flag("--json", options->json, "One JSON object on standard output");
  place->callback([options, place] {
    refuse_idle(*options, *place);
    run(*options);
  });
}

}  // namespace wirewise
