// What an NCCL log says of networks and interfaces, and of how the run ended.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "wirewise/base/text.h"
#include "wirewise/cli/doctor_machine.h"
#include "wirewise/cli/doctor_nccl.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostNamed = 12;

std::string some(const std::set<std::string>& names) {
  std::vector<std::string> first;
  for (const std::string& name : names) {
    if (first.size() < kMostNamed) first.push_back(name);
  }
  return join(first, ", ") + (names.size() > first.size() ? fmt::format(" and {} more", names.size() - first.size()) : "");
}

/// "0-3, 7".
std::string ranges(const std::set<int>& numbers) {
  std::vector<std::string> parts;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int first = *at;
    int last = first;
    for (++at; at != numbers.end() && *at == last + 1; ++at) last = *at;
    parts.push_back(first == last ? std::to_string(first) : fmt::format("{}-{}", first, last));
  }
  constexpr std::size_t kMostRanges = 24;
  const std::size_t all = parts.size();
  parts.resize(std::min(all, kMostRanges));
  return join(parts, ", ") + (all > kMostRanges ? " …" : "");
}

std::string ranks_text(const std::set<int>& ranks) { return (ranks.size() == 1 ? "Rank " : "Ranks ") + ranges(ranks); }

int most_ranks(const NcclLog& log) {
  int most = 0;
  for (const NcclCommunicator& one : log.communicators) most = std::max(most, one.size);
  return most;
}

std::size_t hosts_of(const NcclLog& log) {
  std::set<std::string> hosts;
  for (const NcclCommunicator& one : log.communicators) {
    for (const auto& [rank, facts] : one.ranks) hosts.insert(facts.host);
  }
  for (const NcclInterface& one : log.interfaces) hosts.insert(one.host);
  return hosts.size();
}

bool leads_nowhere(const std::string& name) { return name == "lo" || is_host_bridge(name); }

void interfaces(const NcclLog& log, std::vector<Finding>& findings) {
  std::map<std::pair<std::string, std::string>, std::set<std::string>> used;  // name and address: hosts
  std::map<std::string, std::set<std::string>> holders;                       // of an address
  std::map<std::string, bool> first_seen;                                     // host: its first interface for data is known
  std::map<std::string, std::set<std::string>> names;                         // of a host: all its interfaces
  for (const NcclInterface& one : log.interfaces) {
    if (!one.sockets || !first_seen[one.host] || leads_nowhere(one.name)) used[{one.name, one.address}].insert(one.host);
    if (one.sockets) first_seen[one.host] = true;
    if (!one.sockets) names[one.host].insert(one.name);
    holders[one.address].insert(one.host);
  }
  const bool several = hosts_of(log) > 1 || std::any_of(log.communicators.begin(), log.communicators.end(), [](const NcclCommunicator& one) { return one.size > static_cast<int>(one.ranks.size()) && !one.ranks.empty(); });
  std::set<std::string> nowhere;
  for (const auto& [what, hosts] : used) {
    if (!leads_nowhere(what.first)) continue;
    for (const std::string& host : hosts) nowhere.insert(fmt::format("{} ({}){}", what.first, what.second, host.empty() ? "" : " on " + host));
  }
  if (!nowhere.empty()) {
    findings.push_back({several ? Severity::kError : Severity::kInfo, "NCCL takes an interface that leads to no other host.", some(nowhere) + ". Bridges of containers, virtual machines and the loopback stay within their host.",
                        "Name the interface that leads to the other hosts: NCCL_SOCKET_IFNAME=eth0, or leave the wrong ones out with NCCL_SOCKET_IFNAME=^docker,lo,veth,virbr,br-."});
    return;
  }
  for (const auto& [address, hosts] : holders) {
    if (hosts.size() < 2 || address.starts_with("127.") || address.starts_with("fe80:")) continue;
    findings.push_back({Severity::kError, "Hosts tell NCCL the same address.", fmt::format("{} is that of {}: what is sent there doesn't leave the host.", address, some(hosts)),
                        "Name the interface that leads to the other hosts with NCCL_SOCKET_IFNAME."});
    return;
  }
  std::map<std::string, std::set<std::string>> by_names;  // "ib0 and ib1": hosts
  for (const auto& [host, own] : names) by_names[join(std::vector<std::string>(own.begin(), own.end()), " and ")].insert(host);
  if (by_names.size() > 1) {
    std::vector<std::string> each;
    for (const auto& [own, hosts] : by_names) each.push_back(fmt::format("{} on {}", own, some(hosts)));
    each.resize(std::min(each.size(), kMostNamed));
    findings.push_back({Severity::kInfo, "Hosts meet over interfaces of different names.", join(each, "; ") + ".", "See that these are in one network; if not, name the right one with NCCL_SOCKET_IFNAME."});
  }
}

void networks(const NcclLog& log, std::vector<Finding>& findings) {
  std::map<std::string, std::set<std::string>> by_name;
  for (const auto& [host, name] : log.networks) by_name[name].insert(host);
  if (by_name.size() > 1) {
    std::vector<std::string> each;
    for (const auto& [name, hosts] : by_name) each.push_back(fmt::format("{} on {}", name, some(hosts)));
    findings.push_back({Severity::kError, "Hosts use different networks.", join(each, "; ") + ".", "Ranks then can't connect: make adapters, plugins and NCCL's variables the same on all hosts."});
  }
  std::set<std::string> slow;
  for (const auto& [host, provider] : log.providers) {
    if (provider.starts_with("tcp") || provider.starts_with("sockets")) slow.insert(fmt::format("{}{}", provider, host.empty() ? "" : " on " + host));
  }
  if (!slow.empty()) {
    findings.push_back({Severity::kWarning, "The libfabric plugin uses TCP in place of the adapter.", some(slow) + ".", "On AWS: unset FI_PROVIDER or set it to efa, pass /dev/infiniband into the container, and see fi_info -p efa."});
  }
}

void hangs(const NcclLog& log, std::vector<Finding>& findings) {
  std::map<std::tuple<std::string, long long, std::string>, std::vector<const NcclTimeout*>> by_work;
  std::set<int> all;
  for (const NcclTimeout& timeout : log.timeouts) {
    by_work[{timeout.group, timeout.work, timeout.operation}].push_back(&timeout);
    if (timeout.rank >= 0) all.insert(timeout.rank);
  }
  const int size = most_ranks(log);
  for (const auto& [key, waiting] : by_work) {
    const auto& [group, work, operation] = key;
    std::set<int> ranks;
    for (const NcclTimeout* timeout : waiting) ranks.insert(timeout->rank);
    ranks.erase(-1);
    const NcclTimeout& first = *waiting.front();
    std::string evidence = fmt::format("Line {}: {}{}{}", first.line, ranks.empty() ? "a rank" : ranks.size() == 1 ? "rank " + ranges(ranks) : "ranks " + ranges(ranks),
                                       first.milliseconds >= 0 ? fmt::format(" waited {:.4g} s", static_cast<double>(first.milliseconds) / 1e3) : " waited",
                                       first.elements >= 0 ? fmt::format(" for {} elements", first.elements) : "");
    evidence += (group.empty() ? "" : " in group " + group) + ".";
    // Only where the group is the whole job does the log say who else is in it.
    std::set<int> absent, behind;
    const bool whole = group.empty() || group == "default_pg" || group == "0";
    for (int rank = 0; whole && rank < size; ++rank) {
      if (!all.contains(rank)) absent.insert(rank);
    }
    for (const auto& [who, done] : log.completed) {
      if (who.first == group && work >= 0 && done + 1 < work) behind.insert(who.second);
    }
    if (!absent.empty() && absent.size() < static_cast<std::size_t>(size)) evidence += fmt::format(" {} {} not report it.", ranks_text(absent), absent.size() == 1 ? "does" : "do");
    if (!behind.empty()) evidence += fmt::format(" {} had not come so far: the last that ended there came before.", ranks_text(behind));
    findings.push_back({Severity::kError, fmt::format("A collective timed out: {}{}.", operation.empty() ? "which isn't said" : operation, work >= 0 ? fmt::format(" number {}", work) : ""), std::move(evidence),
                        "Look first at ranks that don't report it: they have ended or are elsewhere (out of memory, another branch, a checkpoint, data). wirewise doctor flight finds them in flight records; a longer timeout only hides it."});
    if (findings.size() > 64) break;
  }
  std::map<std::pair<std::string, long long>, std::set<std::string>> operations;
  for (const NcclTimeout& timeout : log.timeouts) operations[{timeout.group, timeout.work}].insert(timeout.operation);
  for (const auto& [key, names] : operations) {
    if (key.second < 0 || names.size() < 2) continue;
    findings.push_back({Severity::kError, "Ranks wait in different collectives.", fmt::format("Number {} is {} on some ranks and {} on others.", key.second, *names.begin(), *names.rbegin()),
                        "They took different branches: look for collectives inside an if, and for data of different length."});
    break;
  }
}

void ends(const NcclLog& log, std::vector<Finding>& findings) {
  for (const NcclError& error : log.errors) {
    if (std::any_of(log.warnings.begin(), log.warnings.end(), [&](const NcclWarning& warning) { return warning.text == error.last; })) continue;  // said as a warning
    const bool system = error.what == "unhandled system error", cuda = error.what == "unhandled cuda error", usage = error.what == "invalid usage";
    const bool peer = error.what.starts_with("remote process");
    const NcclMeaning meaning = meaning_of(error.last);
    findings.push_back({Severity::kError, meaning.title.empty() ? fmt::format("NCCL ended with \"{}\".", error.what) : meaning.title,
                        fmt::format("Line {}{}{}.", error.line, error.count > 1 ? fmt::format(", {} times", error.count) : "", error.last.empty() ? ": " + error.what : fmt::format(": {}: {}", error.what, error.last)),
                        !meaning.remedy.empty() ? meaning.remedy
                        : system ? "A call of the system failed: sockets, memory, RDMA. The NCCL WARN line above it says which; without one, take the log with NCCL_DEBUG=WARN or INFO."
                        : cuda   ? "A call of CUDA failed. The NCCL WARN line above it says which; the first failure of a process is the cause."
                        : usage  ? "The call itself is wrong: mixed dtypes or devices, two ranks on one GPU, different versions."
                        : peer   ? "A peer has gone away. Its own log says why: look for the rank that failed first."
                                 : "Look at the NCCL WARN line above it."});
  }
  if (log.aborted > 0) {
    findings.push_back({Severity::kWarning, "Ranks gave communicators up.", fmt::format("The log says \"Abort COMPLETE\" {} time{}.", log.aborted, log.aborted == 1 ? "" : "s"),
                        "That is what follows an error or a timeout: look for what came before it, on all ranks."});
  }
  for (const NcclCommunicator& one : log.communicators) {
    if (one.unfinished.empty()) continue;
    findings.push_back({one.links.empty() ? Severity::kWarning : Severity::kInfo, "The initialisation of a communicator didn't end in this log.",
                        fmt::format("{} of {} began it (Init START) and {} not said to have ended it.", ranks_text(one.unfinished), one.size, one.unfinished.size() == 1 ? "is" : "are"),
                        "Where the log isn't just cut off: a rank is missing or can't be reached. See that all ranks are started, and that NCCL_SOCKET_IFNAME names an interface which leads to the other hosts."});
    break;
  }
}

}  // namespace

std::vector<Finding> check_nccl_setup(const NcclLog& log) {
  std::vector<Finding> findings;
  interfaces(log, findings);
  networks(log, findings);
  return findings;
}

std::vector<Finding> check_nccl_end(const NcclLog& log) {
  std::vector<Finding> findings;
  hangs(log, findings);
  ends(log, findings);
  return findings;
}

}  // namespace wirewise
