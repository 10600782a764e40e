#include "wirewise/wiring/nccl_instances.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

namespace wirewise {
namespace {

void add(NcclCommunicator& to, const NcclInstance& from) {
  to.size = std::max(to.size, from.size);
  if (from.rank >= 0) {
    NcclRank& rank = to.ranks[from.rank];
    if (rank.host.empty()) rank = {from.host, from.pid, from.device, from.bus, from.complete};
    else if (rank.host == from.host && rank.pid == from.pid) {
      rank.complete = rank.complete || from.complete;
      if (rank.bus.empty()) rank.bus = from.bus;
    }
  }
  for (const auto& [ends, transports] : from.said.links) {
    for (const auto& [transport, channels] : transports) to.nvlink = to.nvlink || transport.find("MNNVL") != std::string::npos;
    for (const auto& [transport, channels] : transports) to.links[ends][transport].insert(channels.begin(), channels.end());
  }
  for (const auto& [number, order] : from.said.rings) to.rings.try_emplace(number, order);
  for (const auto& [number, nodes] : from.said.trees) to.trees[number].insert(nodes.begin(), nodes.end());
  to.channels = std::max(to.channels, from.said.channels);
  to.p2p_channels = std::max(to.p2p_channels, from.said.p2p_channels);
  to.nvls_channels = std::max(to.nvls_channels, from.said.nvls_channels);
  to.nvls = to.nvls || from.said.nvls || from.said.nvls_channels > 0;
  to.nvlink = to.nvlink || from.said.nvlink;
  to.collnet = to.collnet || from.said.collnet;
}

using Members = std::vector<const NcclInstance*>;

int most_of_one_rank(const Members& members) {
  std::map<int, std::set<std::pair<std::string, long long>>> seen;
  int most = 1;
  for (const NcclInstance* member : members) {
    if (member->rank < 0) continue;
    seen[member->rank].insert({member->host, member->pid});
    most = std::max(most, static_cast<int>(seen[member->rank].size()));
  }
  return most;
}

/// Communicators of one size whose ranks the log doesn't assign: told apart by host (a group inside each) or by device (a group of each
/// across hosts) where that makes at least one whole.
template <typename KeyOf>
std::optional<std::vector<Members>> told_apart(const Members& members, int size, KeyOf key_of) {
  std::map<std::string, Members> parts;
  for (const NcclInstance* member : members) parts[key_of(*member)].push_back(member);
  bool whole = false;
  for (const auto& [key, part] : parts) {
    if (most_of_one_rank(part) > 1) return std::nullopt;
    std::set<int> ranks;
    for (const NcclInstance* member : part) ranks.insert(member->rank);
    whole = whole || static_cast<int>(ranks.size()) >= size;
  }
  if (!whole) return std::nullopt;
  std::vector<Members> all;
  for (auto& [key, part] : parts) all.push_back(std::move(part));
  return all;
}

int highest(const NcclInstance& one) {
  int most = one.rank;
  for (const auto& [ends, transports] : one.said.links) most = std::max({most, ends.first, ends.second});
  for (const auto& [channel, nodes] : one.said.trees) {
    for (const auto& [rank, node] : nodes) {
      most = std::max({most, rank, node.up});
      for (int child : node.down) most = std::max(most, child);
    }
  }
  return most;
}

/// Where a tree's ranks are all in the log, it says how many there are.
int size_of_trees(const NcclCommunicator& one) {
  for (const auto& [channel, nodes] : one.trees) {
    int roots = 0;
    bool whole = true;
    for (const auto& [rank, node] : nodes) {
      roots += node.up < 0 ? 1 : 0;
      whole = whole && (node.up < 0 || nodes.contains(node.up));
      for (int child : node.down) whole = whole && nodes.contains(child);
    }
    if (whole && roots == 1 && nodes.size() > 1 && nodes.begin()->first == 0 && nodes.rbegin()->first == static_cast<int>(nodes.size()) - 1) return static_cast<int>(nodes.size());
  }
  return 0;
}

NcclCommunicator joined(const Members& members, const std::string& id, int merged) {
  NcclCommunicator communicator;
  communicator.id = id;
  communicator.merged = merged;
  std::map<int, std::map<int, int>> after;
  for (const NcclInstance* member : members) {
    add(communicator, *member);
    if (member->begun && !member->complete) communicator.unfinished.insert(member->rank);
    for (const auto& [number, ends] : member->around) after[number][member->rank] = ends.second;
  }
  for (const auto& [number, next] : after) {  // a ring from its ranks' neighbours, where all of them speak
    std::vector<int> order{next.begin()->first};
    while (order.size() < next.size()) {
      const auto onward = next.find(order.back());
      if (onward == next.end() || onward->second == order.front()) break;
      order.push_back(onward->second);
    }
    const auto last = next.find(order.back());
    if (order.size() == next.size() && last != next.end() && last->second == order.front()) communicator.rings.try_emplace(number, order);
  }
  std::erase_if(communicator.unfinished, [&](int rank) { return rank < 0 || communicator.ranks[rank].complete; });
  if (communicator.size == 0 && merged == 1) communicator.size = size_of_trees(communicator);
  return communicator;
}

/// The size of a communicator that a thread doesn't state: the only one there is, or the only one that its host is still at.
int likely_size(const NcclInstance& one, const std::set<int>& sizes, const std::map<std::string, std::set<int>>& begun) {
  std::set<int> here = sizes;
  if (sizes.size() > 1 && begun.contains(one.host)) here = begun.at(one.host);
  return here.size() == 1 && highest(one) < *here.begin() ? *here.begin() : 0;
}

}  // namespace

std::vector<NcclCommunicator> nccl_communicators(std::vector<NcclInstance> instances) {
  std::vector<NcclCommunicator> communicators;
  std::map<std::tuple<std::string, long long, int, int, std::string>, int> turns;  // a process may drive several GPUs
  std::map<std::tuple<int, std::string, int>, Members> groups;  // size, id, turn
  std::set<int> sizes;
  std::map<std::string, std::set<int>> begun;  // sizes of communicators that a host hasn't finished
  for (const NcclInstance& one : instances) {
    if (one.size > 0) sizes.insert(one.size);
    if (one.size > 0 && !one.complete) begun[one.host].insert(one.size);
  }
  // Threads that don't say which communicator they are of, where there is only one of its size: the log has lost their last lines.
  std::map<int, std::set<std::string>> ids;
  for (const NcclInstance& one : instances) {
    if (!one.id.empty()) ids[one.size].insert(one.id);
  }
  for (NcclInstance& one : instances) {
    const bool empty = one.said.links.empty() && one.said.rings.empty() && one.said.trees.empty() && one.around.empty() && one.size == 0 && one.said.channels == 0 && !one.said.nvls && !one.said.nvlink && !one.said.collnet;
    if (empty) continue;
    if (one.size == 0) one.size = likely_size(one, sizes, begun);
    if (const auto known = ids.find(one.size); one.size > 0 && one.id.empty() && !one.complete && known != ids.end() && known->second.size() == 1) one.id = *known->second.begin();
    if (one.size > 0 && one.complete) one.turn = turns[{one.host, one.pid, one.device, one.size, one.id}]++;
    groups[{one.size, one.id, one.turn}].push_back(&one);
  }
  for (const auto& [key, members] : groups) {
    const auto& [size, id, turn] = key;
    const int most = most_of_one_rank(members);
    if (size == 1) {
      for (const NcclInstance* member : members) communicators.push_back(joined({member}, id, 1));
      continue;
    }
    std::optional<std::vector<Members>> parts;
    if (most > 1) parts = told_apart(members, size, [](const NcclInstance& one) { return one.host; });
    if (most > 1 && !parts) parts = told_apart(members, size, [](const NcclInstance& one) { return std::to_string(one.device); });
    if (!parts) parts = std::vector<Members>{members};
    for (const Members& part : *parts) communicators.push_back(joined(part, id, parts->size() > 1 ? 1 : most));
  }
  return communicators;
}

}  // namespace wirewise
