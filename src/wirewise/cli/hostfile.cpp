#include "wirewise/cli/hostfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "wirewise/base/error.h"
#include "wirewise/base/host_file.h"
#include "wirewise/base/text.h"

namespace wirewise {

std::vector<HostSlots> parse_hosts(std::string_view text, const std::string& file) {
  std::vector<HostLine> lines;
  const auto refuse = [&](int line, const std::string& what, const std::string& remedy) { return bad_input(fmt::format("{}, line {}: {}", printable(file), line, what), remedy); };
  if (const auto fault = parse_host_lines(text, lines)) throw refuse(fault->line, fault->what, fault->remedy);
  std::vector<HostSlots> hosts;
  for (const HostLine& line : lines) {
    if (line.most_slots > 0) throw refuse(line.line, fmt::format("max_slots={} after the host's name.", line.most_slots), "Only slots=N, the host's number of ranks, may stand there.");
    if (!line.others.empty()) throw refuse(line.line, fmt::format("{} after the host's name.", printable(line.others.substr(0, 80))), "Only slots=N, the host's number of ranks, may stand there.");
    if (std::any_of(hosts.begin(), hosts.end(), [&](const HostSlots& other) { return other.name == line.name; })) {
      throw refuse(line.line, printable(line.name) + " stands there twice.", "Give it one line, with slots=N.");
    }
    hosts.push_back({line.name, line.slots});
  }
  if (hosts.empty()) throw bad_input(fmt::format("{} names no host.", printable(file)), "Write a line a host: node1 slots=2.");
  return hosts;
}

std::vector<HostSlots> read_hosts(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  if (stream) text << stream.rdbuf();
  if (!stream || std::filesystem::is_directory(file)) {
    throw bad_input(fmt::format("--hosts {} can't be read{}.", printable(file.string()),
                                errno == 0 ? "" : fmt::format(" ({})", std::strerror(errno))),
                    "Give a file with a line a host: node1 slots=2.");
  }
  return parse_hosts(text.str(), file.string());
}

HostShare share_hosts(const std::vector<HostSlots>& hosts, int ranks, int per_host, const std::string& file) {
  HostShare share;
  long long placed = 0;
  for (const HostSlots& host : hosts) {
    if (ranks > 0 && placed >= ranks) break;
    const int here = per_host > 0 ? per_host : host.slots;
    if (!share.names.empty() && here != share.ranks_each) {
      throw bad_input(fmt::format("every host must hold equally many ranks, but in {} {} has {} slots and {} has {}.", printable(file),
                                  printable(share.names.front()), share.ranks_each, printable(host.name), here),
                      "Give --nproc-per-node N for all of them.");
    }
    share.ranks_each = here;
    share.names.push_back(host.name);
    placed += here;
  }
  if (ranks > placed) {
    throw bad_input(fmt::format("the hosts of {} hold {} ranks together, but --ranks is {}.", printable(file), placed, ranks),
                    "Add hosts or slots, or start fewer.");
  }
  if (ranks > 0 && ranks != placed) {
    throw bad_input(fmt::format("{} ranks don't fill hosts of {} ranks each.", ranks, share.ranks_each),
                    fmt::format("Give a multiple of {}, or --nproc-per-node.", share.ranks_each));
  }
  return share;
}

}  // namespace wirewise
