#include "wirewise/cli/hostfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise {
namespace {

constexpr long long kMostSlots = 1 << 20;

HostSlots parse_line(std::istringstream& words, const std::string& where) {
  HostSlots host;
  words >> host.name;
  if (host.name.front() == '-' || host.name.find('=') != std::string::npos) {  // ssh would read an option
    throw bad_input(fmt::format("{}: {} is no host's name.", where, printable(host.name)), "Write a line a host: node1 slots=2.");
  }
  std::string word;
  bool given = false;
  while (words >> word) {
    const auto equals = word.find('=');
    const std::string key = word.substr(0, equals);
    if (key != "slots" || equals == std::string::npos || given) {
      throw bad_input(fmt::format("{}: {} after the host's name.", where, given ? "a second " + printable(word) : printable(word)),
                      "Only slots=N, the host's number of ranks, may stand there.");
    }
    const auto slots = parse_integer(word.substr(equals + 1));
    if (!slots || *slots < 1 || *slots > kMostSlots) {
      throw bad_input(fmt::format("{}: {} is no number of ranks.", where, printable(word)), "Write slots=2.");
    }
    host.slots = static_cast<int>(*slots);
    given = true;
  }
  return host;
}

}  // namespace

std::vector<HostSlots> parse_hosts(std::string_view text, const std::string& file) {
  std::vector<HostSlots> hosts;
  int number = 0;
  for (std::string line : split(text, '\n')) {
    const std::string where = fmt::format("{}, line {}", printable(file), ++number);
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::istringstream words(line);
    const HostSlots host = parse_line(words, where);
    if (std::any_of(hosts.begin(), hosts.end(), [&](const HostSlots& other) { return other.name == host.name; })) {
      throw bad_input(fmt::format("{}: {} stands there twice.", where, printable(host.name)), "Give it one line, with slots=N.");
    }
    hosts.push_back(host);
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
