#include "wirewise/cli/doctor_nccl.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/doctor_machine.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostShown = 48;  // pairs, or ranks of a ring
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

bool direct_rdma(const std::string& transport) { return transport.find("GDRDMA") != std::string::npos; }

/// "P2P/IPC", "NET/IB without GPUDirect RDMA": a transport without its adapter's number.
std::string general(const std::string& transport) {
  switch (transport_of(transport)) {
    case NcclTransport::kRdma: {
      const std::size_t end = transport.find('/', 4);
      return transport.substr(0, end) + (direct_rdma(transport) ? " with GPUDirect RDMA" : " without GPUDirect RDMA");
    }
    case NcclTransport::kSocket: return "NET/Socket";
    case NcclTransport::kShared: return "SHM";
    default: return transport;
  }
}

std::string capital(NcclTransport kind) {
  switch (kind) {
    case NcclTransport::kPeer: return "GPU to GPU";
    case NcclTransport::kShared: return "through host memory";
    case NcclTransport::kRdma: return "RDMA";
    case NcclTransport::kSocket: return "TCP sockets";
    case NcclTransport::kOther: return "other";
  }
  return "other";
}

class Diagnosis {
 public:
  explicit Diagnosis(const NcclLog& log) : log_(log) {}

  std::vector<Finding> run() {
    for (Finding& finding : check_nccl_end(log_)) findings_.push_back(std::move(finding));
    warnings();
    for (Finding& finding : check_nccl_setup(log_)) findings_.push_back(std::move(finding));
    if (log_.versions.size() > 1) {
      add(Severity::kWarning, "Several versions of NCCL are in this log.", join(log_.versions, ", ") + ".", "One job wants one version on all hosts; several runs in one file are better read one by one.");
    }
    for (const NcclCommunicator& one : log_.communicators) look(one);
    if (!missing_.empty()) {
      add(Severity::kInfo, "Ranks are missing from the log.", "Of communicators it has " + join(missing_, ", ") + " ranks.", "Give the logs of all hosts and processes together, each from its start: cat them into one file.");
    }
    recognised();
    MachineFacts facts;
    for (const auto& [name, value] : log_.settings) facts.variables[name] = value;
    for (Finding& finding : check_variables(facts)) findings_.push_back(std::move(finding));
    ras();
    for (const auto& [text, count] : summaries_) {
      Finding finding = text;
      if (count > 1) finding.title = fmt::format("{} alike: {}", count, finding.title);
      findings_.push_back(std::move(finding));
    }
    if (!log_.algorithms.empty()) {
      const std::vector<std::string> all(log_.algorithms.begin(), log_.algorithms.end());
      add(Severity::kInfo, "Algorithms and protocols that NCCL chose.", join(all, ", ") + ".", "");
    }
    if (!log_.notes.empty()) {
      add(Severity::kInfo, "The log is not whole.", fmt::format("Line {}: {}{}", log_.notes.front().line, log_.notes.front().text, log_.notes.size() > 1 ? fmt::format(" And {} more such places.", log_.notes.size() - 1) : ""),
          "NCCL_DEBUG_FILE=nccl.%h.%p gives each process a file of its own.");
    }
    sort_findings(findings_);
    return std::move(findings_);
  }

 private:
  void add(Severity severity, std::string title, std::string evidence, std::string remedy) { findings_.push_back({severity, std::move(title), std::move(evidence), std::move(remedy)}); }

  void warnings() {
    for (const NcclWarning& warning : log_.warnings) {
      const NcclMeaning meaning = meaning_of(warning.text);
      const std::string evidence = fmt::format("Line {}{}{}: {}{}", warning.line, warning.host.empty() ? "" : ", " + warning.host, warning.place.empty() ? "" : ", " + warning.place, warning.text,
                                               warning.count > 1 ? fmt::format(" ({} times)", warning.count) : "");
      if (meaning.title.empty()) add(Severity::kWarning, "NCCL warned.", evidence, "");
      else add(warning.place.starts_with("ras/") ? Severity::kInfo : meaning.severity, meaning.title, evidence, meaning.remedy);
    }
  }

  static std::string host_of(const NcclCommunicator& one, int rank) {
    const auto found = one.ranks.find(rank);
    return found == one.ranks.end() ? std::string() : found->second.host;
  }

  static std::string name_of_all(const NcclCommunicator& one) {
    std::set<std::string> hosts;
    for (const auto& [rank, facts] : one.ranks) hosts.insert(facts.host);
    const std::string ranks = one.size > 0 ? fmt::format("{} rank{}", one.size, one.size == 1 ? "" : "s") : "ranks whose number isn't said";
    const bool whole = one.size > 0 && static_cast<int>(one.ranks.size()) >= one.size;
    const std::string where = hosts.size() == 1 ? (whole ? "on one host" : "") : whole ? fmt::format("on {} hosts", hosts.size()) : "";
    return (one.merged > 1 ? fmt::format("{} communicators, which the log doesn't tell apart, of {}", one.merged, ranks) : "Communicator of " + ranks) + (where.empty() ? "" : " " + where);
  }

  /// Pairs by transport, "P2P/IPC: 0→1 1→2 (12 pairs)".
  static std::string pairs_of(const NcclCommunicator& one) {
    std::map<std::pair<NcclTransport, std::string>, std::vector<std::string>> by;
    for (const auto& [ends, transports] : one.links) {
      std::set<std::string> once;
      for (const auto& [transport, channels] : transports) {
        if (once.insert(general(transport)).second) by[{transport_of(transport), general(transport)}].push_back(fmt::format("{}→{}", ends.first, ends.second));
      }
    }
    std::vector<std::string> parts;
    for (const auto& [key, pairs] : by) {
      const std::vector<std::string> shown(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(std::min(pairs.size(), kMostShown)));
      parts.push_back(fmt::format("{} ({}): {} pair{}, {}{}", key.second, capital(key.first), pairs.size(), pairs.size() == 1 ? "" : "s", join(shown, " "), pairs.size() > shown.size() ? " …" : ""));
    }
    return parts.empty() ? "No connection is in the log." : join(parts, "; ") + ".";
  }

  static std::string rings_of(const NcclCommunicator& one) {
    std::map<std::vector<int>, std::vector<std::string>> same;
    for (const auto& [channel, order] : one.rings) same[order].push_back(std::to_string(channel));
    std::string text;
    for (const auto& [order, channels] : same) {
      std::vector<std::string> ranks;
      for (std::size_t i = 0; i < order.size() && i < kMostShown; ++i) ranks.push_back(std::to_string(order[i]));
      text += fmt::format(" Ring of channel{} {}: {}{}.", channels.size() > 1 ? "s" : "", join(channels, ", "), join(ranks, " "), static_cast<int>(order.size()) < one.size || order.size() > ranks.size() ? " …" : "");
    }
    return text;
  }

  static std::string trees_of(const NcclCommunicator& one) {
    std::map<std::string, std::vector<std::string>> same;
    for (const auto& [channel, nodes] : one.trees) {
      std::vector<std::string> roots;
      int depth = 0;
      for (const auto& [rank, node] : nodes) {
        if (node.up == -1) roots.push_back(std::to_string(rank));
        int steps = 0;
        for (auto at = nodes.find(rank); at != nodes.end() && at->second.up >= 0 && steps <= static_cast<int>(nodes.size()); at = nodes.find(at->second.up)) ++steps;
        depth = std::max(depth, steps);
        if (nodes.size() > 4096) break;
      }
      if (roots.empty()) continue;
      const bool whole = one.size > 0 && static_cast<int>(nodes.size()) >= one.size;
      same["root " + join(roots, " or ") + (whole ? fmt::format(", {} steps deep", depth) : fmt::format(", seen from {} ranks", nodes.size()))].push_back(std::to_string(channel));
    }
    std::string text;
    for (const auto& [shape, channels] : same) text += fmt::format(" Tree of channel{} {}: {}.", channels.size() > 1 ? "s" : "", join(channels, ", "), shape);
    return text;
  }

  void look(const NcclCommunicator& one) {
    std::string evidence = pairs_of(one);
    if (one.channels > 0) evidence += fmt::format(" {} channels for collectives, {} between pairs.", one.channels, one.p2p_channels);
    evidence += rings_of(one) + trees_of(one);
    Finding summary{Severity::kInfo, name_of_all(one) + ".", std::move(evidence), ""};
    const auto same = std::find_if(summaries_.begin(), summaries_.end(), [&](const auto& other) { return other.first.title == summary.title && other.first.evidence == summary.evidence; });
    if (same != summaries_.end()) ++same->second;
    else summaries_.emplace_back(std::move(summary), 1);
    transports(one);
    duplicates(one);
    if (one.merged == 1 && one.size > static_cast<int>(one.ranks.size()) && !one.ranks.empty()) {
      missing_.push_back(fmt::format("{} of {}", one.ranks.size(), one.size));
    }
  }

  void duplicates(const NcclCommunicator& one) {
    if (one.merged > 1) return;
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> by_gpu;
    for (const auto& [rank, facts] : one.ranks) {
      if (!facts.bus.empty() && facts.bus != std::to_string(facts.device)) by_gpu[{facts.host, facts.bus}].push_back(std::to_string(rank));
    }
    for (const auto& [gpu, ranks] : by_gpu) {
      if (ranks.size() > 1) add(Severity::kError, "Several ranks are on one GPU.", fmt::format("Ranks {} on {}, GPU {}.", join(ranks, ", "), gpu.first, gpu.second), "Choose each rank's GPU by its local rank (LOCAL_RANK).");
    }
  }

  void transports(const NcclCommunicator& one) {
    std::vector<std::string> shared, inside_net, sockets;
    bool peers = false, rdma = false, direct = false;
    for (const auto& [ends, transports] : one.links) {
      const std::string a = host_of(one, ends.first), b = host_of(one, ends.second);
      const bool inside = one.merged == 1 && !a.empty() && a == b;
      const std::string pair = fmt::format("{}→{}", ends.first, ends.second);
      for (const auto& [transport, channels] : transports) {
        const NcclTransport kind = transport_of(transport);
        peers = peers || kind == NcclTransport::kPeer;
        rdma = rdma || kind == NcclTransport::kRdma;
        if (kind == NcclTransport::kRdma) rdma_nets_.insert(transport.substr(0, transport.find('/', 4)));
        direct = direct || direct_rdma(transport);
        auto* const list = kind == NcclTransport::kShared ? &shared : kind == NcclTransport::kSocket ? &sockets : nullptr;
        if (list != nullptr && (list->empty() || list->back() != pair)) list->push_back(pair);
        if (inside && (kind == NcclTransport::kRdma || kind == NcclTransport::kSocket) && (inside_net.empty() || inside_net.back() != pair)) inside_net.push_back(pair);
      }
    }
    peers_ = peers_ || peers;
    rdma_ = rdma_ || rdma;
    direct_ = direct_ || direct;
    shared_ = shared_ || !shared.empty();
    sockets_ = sockets_ || !sockets.empty();
    const auto some = [](std::vector<std::string> pairs) {
      const std::size_t all = pairs.size();
      pairs.resize(std::min(all, std::size_t{12}));
      return join(pairs, " ") + (all > pairs.size() ? fmt::format(" and {} more", all - pairs.size()) : "");
    };
    if (!inside_net.empty()) {
      once(Severity::kWarning, "Ranks of one host talk through the network.", some(inside_net) + ".", "Peer-to-peer and shared memory are both off or failed between them: unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE.");
    }
    if (!sockets.empty() && (!log_.ib_devices.empty() || rdma)) {
      once(Severity::kWarning, "TCP sockets are used although there is RDMA.", some(sockets) + fmt::format("; adapters: {}.", log_.ib_devices.empty() ? "used by other pairs" : log_.ib_devices.begin()->second),
           "Unset NCCL_IB_DISABLE and NCCL_NET; see that the adapter's port is active on every host.");
    } else if (!sockets.empty() && inside_net.empty()) {
      once(Severity::kWarning, "Hosts talk over TCP sockets.", some(sockets) + "." + (log_.no_verbs ? " NCCL didn't find libibverbs: without rdma-core it can't use RDMA." : log_.no_ib.empty() ? "" : " NCCL found no RDMA device."), "Where there is InfiniBand or RoCE, see wirewise doctor for why it isn't used; on 10 GbE there is nothing better.");
    }
    if (!shared.empty()) {
      once(Severity::kWarning, peers && one.merged == 1 ? "Some GPUs of a host go through host memory, others don't." : "GPUs of a host go through host memory.", some(shared) + fmt::format("{}.", one.nvlink || one.nvls ? "; the log names NVLink between GPUs" : ""),
           "Peer-to-peer isn't possible between them, or is off: see nvidia-smi topo -p2p r, NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, ACS and the IOMMU (wirewise doctor).");
    }
    if (peers && one.size > 2 && one.channels > 0 && one.channels <= 2) {
      once(Severity::kWarning, fmt::format("Only {} channels.", one.channels), name_of_all(one) + ": few channels can't fill NVLink. NCCL takes as few when the way between hosts is narrow or far from the GPUs.",
           "Unset NCCL_MAX_NCHANNELS and NCCL_MAX_RINGS; compare with a run on one host, and see the NICs' places with wirewise topo.");
    }
  }

  void once(Severity severity, std::string title, std::string evidence, std::string remedy) {
    if (said_.insert(title).second) add(severity, std::move(title), std::move(evidence), std::move(remedy));
  }

  void recognised() {
    bool nvlink = false, nvls = false, any = false, collnet = false;
    for (const NcclCommunicator& one : log_.communicators) {
      nvlink = nvlink || one.nvlink || one.nvls;
      nvls = nvls || one.nvls;
      collnet = collnet || one.collnet;
      any = any || !one.links.empty();
    }
    if (rdma_ && !direct_) {
      const std::string unmarked = "no connection over " + join(std::vector<std::string>(rdma_nets_.begin(), rdma_nets_.end()), ", ") + " is marked GDRDMA.";
      const bool libfabric = std::any_of(rdma_nets_.begin(), rdma_nets_.end(), [](const std::string& net) { return net.find("ibfabric") != std::string::npos || net.find("OFI") != std::string::npos; });
      add(Severity::kWarning, "No GPUDirect RDMA: traffic between hosts stops in host memory.", !log_.gdr_far.empty() ? "NCCL says: " + log_.gdr_far + "." : log_.gdr_disabled ? "NCCL says that it is disabled." : log_.gdr_enabled ? "The adapters can (GPU Direct RDMA Enabled), but " + unmarked : "N" + unmarked.substr(1),
          libfabric ? "EFA reads GPUs' memory on p4d, p5 and newer instances only: FI_EFA_USE_DEVICE_RDMA=1 and a new EFA installer there, elsewhere nothing is wrong. Of other providers, fi_info -p NAME -v says whether it has FI_HMEM."
                    : "Load nvidia_peermem, or use the driver's open kernel modules (dma-buf); keep each NIC behind its GPU's PCIe switch, or set NCCL_NET_GDR_LEVEL=PHB. Not every adapter can do it (Omni-Path needs its own driver).");
    }
    if (!any && !nvls && !nvlink && !collnet && !log_.gdr_enabled && !log_.dmabuf && log_.versions.size() != 1) return;
    std::vector<std::string> parts;
    if (log_.versions.size() == 1) parts.push_back((log_.rccl ? "RCCL " : "NCCL ") + log_.versions.front());
    const std::string wires = log_.rccl ? "xGMI" : "NVLink";
    if (any) parts.push_back(peers_ ? "peer-to-peer between GPUs: yes" : shared_ || sockets_ ? "peer-to-peer between GPUs: no" : "peer-to-peer between GPUs: not to be seen");
    parts.push_back(wires + (nvls ? ": yes, with reductions in the NVSwitch (NVLS)" : nvlink ? ": yes" : peers_ ? ": the log doesn't say (P2P goes over " + wires + " or PCIe)" : ": not to be seen"));
    parts.push_back(direct_ ? "GPUDirect RDMA: yes" : rdma_ ? "GPUDirect RDMA: no" : log_.gdr_enabled ? "GPUDirect RDMA: the adapters can" : log_.dmabuf ? "GPUDirect RDMA: dma-buf is available" : "GPUDirect RDMA: not to be seen");
    if (collnet) parts.emplace_back("sums in the network's switches (CollNet, SHARP): yes");
    add(Severity::kInfo, "What NCCL recognised.", join(parts, "; ") + ".", !nvlink && peers_ ? "NCCL_DEBUG_SUBSYS=INIT,GRAPH makes it print the links that it found." : "");
  }

  void ras() {
    for (const auto& [name, value] : log_.ras) {
      const bool group = name.starts_with("group");
      const bool fine = group ? value.ends_with("RUNNING OK") : name == "job";
      add(fine ? Severity::kInfo : Severity::kError, group ? "NCCL's health report of " + name + "." : name == "job" ? "NCCL's health report of the job." : "NCCL's health report has " + name + ".", value + ".",
          group && fine ? "RUNNING and OK say that the ranks answer, not that they make progress: wirewise doctor flight finds a rank that hangs." : "");
    }
  }

  const NcclLog& log_;
  std::vector<Finding> findings_;
  std::vector<std::pair<Finding, int>> summaries_;
  std::set<std::string> said_, rdma_nets_;  // "NET/IB"
  std::vector<std::string> missing_;
  bool peers_ = false, rdma_ = false, direct_ = false, shared_ = false, sockets_ = false;
};

void print_communicators(const NcclLog& log) {
  using Json = nlohmann::ordered_json;
  for (const NcclCommunicator& one : log.communicators) {
    Json json{{"id", one.id}, {"size", one.size}, {"merged", one.merged}, {"channels", one.channels}, {"p2p_channels", one.p2p_channels}, {"nvls", one.nvls}, {"nvlink", one.nvlink}};
    Json& ranks = json["ranks"] = Json::array();
    for (const auto& [rank, facts] : one.ranks) ranks.push_back({{"rank", rank}, {"host", facts.host}, {"pid", facts.pid}, {"device", facts.device}, {"bus", facts.bus}, {"complete", facts.complete}});
    Json& pairs = json["pairs"] = Json::array();
    for (const auto& [ends, transports] : one.links) {
      for (const auto& [transport, channels] : transports) pairs.push_back({{"from", ends.first}, {"to", ends.second}, {"transport", transport}, {"channels", channels}});
    }
    Json& rings = json["rings"] = Json::array();
    for (const auto& [channel, order] : one.rings) rings.push_back({{"channel", channel}, {"ranks", order}});
    Json& trees = json["trees"] = Json::array();
    for (const auto& [channel, nodes] : one.trees) {
      for (const auto& [rank, node] : nodes) trees.push_back({{"channel", channel}, {"rank", rank}, {"up", node.up}, {"down", node.down}});
    }
    std::cout << Json{{"communicator", std::move(json)}}.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  }
}

/// Appends all of a log, "-" for standard input. The lines of the next one begin behind a newline.
void append_log(const std::string& path, std::string& text) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) throw bad_input(printable(path) + " is a folder.", "Give the logs in it: wirewise doctor nccl FOLDER/*");
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file) throw bad_input("there is no log " + printable(path) + " that can be read.", "Check the path.");
  }
  std::istream& in = path == "-" ? std::cin : file;
  if (!text.empty() && text.back() != '\n') text += '\n';
  std::vector<char> block(1 << 20);
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0) {
    text.append(block.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMostBytes) throw bad_input("with " + printable(path) + " it is more than 1 GiB.", "Give the beginning of it: all that counts is printed at the start of a run.");
  }
  if (in.bad()) throw bad_input(printable(path) + " can't be read to its end.", "Check the disk that it lies on.");
}

std::string read_logs(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) append_log(path, text);
  return text;
}

struct Arguments {
  std::vector<std::string> logs;
  std::string from;
  bool json = false;
};

}  // namespace

std::vector<Finding> diagnose_nccl(const NcclLog& log) { return Diagnosis(log).run(); }

void register_doctor_nccl(CLI::App& doctor, int& exit) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = doctor.add_subcommand("nccl", "What NCCL uses between each pair of ranks, and what looks wrong, from a log with NCCL_DEBUG=INFO");
  command->add_option("log", arguments->logs, "The log, - for standard input; several where ranks or hosts have their own (NCCL_DEBUG_FILE)")->required();
  command->add_option("--from", arguments->from, "What else describes the machine (nvidia-smi topo -m, NCCL's XML …): where the log disagrees with it");
  command->add_flag("--json", arguments->json, "A line of JSON for each communicator, and one for the findings");
  command->callback([arguments, &exit] {
    const NcclLog log = read_nccl_log(read_logs(arguments->logs), arguments->logs.size() == 1 ? arguments->logs.front() : std::to_string(arguments->logs.size()) + " logs");
    if (arguments->json) print_communicators(log);
    std::vector<Finding> findings = diagnose_nccl(log);
    if (!arguments->from.empty()) {
      for (Finding& finding : compare_nccl(log, read_wiring_file(arguments->from).wiring, arguments->from)) findings.push_back(std::move(finding));
      sort_findings(findings);
    }
    print_findings(findings, arguments->json, "The log says nothing about connections: take it with NCCL_DEBUG=INFO.");
    exit = exit_code_of(findings);
  });
}

}  // namespace wirewise
