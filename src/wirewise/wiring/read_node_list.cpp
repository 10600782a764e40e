// Names of hosts alone: Slurm's bracketed lists ("n[001-016],login") and host files with slots.
#include <algorithm>
#include <map>

#include "wirewise/base/host_file.h"
#include "wirewise/base/node_list.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/slurm_topology.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

std::string joined(const std::vector<TextLine>& lines) {
  std::string text;
  for (const TextLine& line : lines) text += line.text + "\n";
  return text;
}

bool is_list(const std::string& name) { return name.find_first_of("[],") != std::string::npos; }

bool name_like(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || std::string_view("._-@:[],").find(c) != std::string_view::npos; });
}

}  // namespace

bool looks_like_node_list(const std::vector<TextLine>& lines) {
  std::vector<HostLine> hosts;
  if (parse_host_lines(joined(lines), hosts)) return false;
  return !hosts.empty() && std::all_of(hosts.begin(), hosts.end(), [](const HostLine& host) { return name_like(host.name); });
}

Reading read_node_list(std::string_view text, std::string_view file) {
  Reading reading;
  reading.format = Format::kNodeList;
  const std::vector<TextLine> lines = text_lines(text);
  std::vector<HostLine> hosts;
  const auto place = [&](int line, int column) {
    const std::vector<int>& columns = lines[static_cast<std::size_t>(line - 1)].column;
    const auto at = static_cast<std::size_t>(column - 1);
    return at < columns.size() ? columns[at] : column;
  };
  if (const auto fault = parse_host_lines(joined(lines), hosts)) throw unreadable(file, fault->line, place(fault->line, fault->column), fault->what, fault->remedy);
  std::map<std::string, std::size_t> index;
  std::vector<std::string> names;
  std::vector<long long> slots;
  std::vector<int> line_of;
  bool with_slots = false;
  std::size_t named = 0;
  for (const HostLine& host : hosts) {
    std::vector<std::string> here;
    if (is_list(host.name)) {
      const auto fault = expand_node_list(host.name, here, kMostSlurmNodes - std::min(kMostSlurmNodes, named));
      if (fault) throw unreadable(file, host.line, place(host.line, host.column + static_cast<int>(fault->offset)), fault->what + ".", "A list looks like n[001-003,7],login.");
    } else {
      here.push_back(host.name);
    }
    named += here.size();
    if (named > kMostSlurmNodes) throw unreadable(file, host.line, 0, "there are more than " + std::to_string(kMostSlurmNodes) + " hosts.");
    with_slots = with_slots || host.slots_given;
    for (std::string& name : here) {
      const auto [found, fresh] = index.try_emplace(name, names.size());
      if (fresh) {
        names.push_back(std::move(name));
        slots.push_back(host.slots);
        line_of.push_back(host.line);
      } else {
        slots[found->second] += host.slots;
        with_slots = true;
        constexpr std::size_t kMostNotes = 16;
        if (host.slots_given && reading.notes.size() < kMostNotes) {
          reading.notes.push_back({host.line, 0, names[found->second] + " stands there again, first in line " + std::to_string(line_of[found->second]) + ": its slots are added, " + std::to_string(slots[found->second]) + " in all."});
        }
      }
    }
    if (!host.others.empty()) reading.facts.push_back({host.name, "also stated", host.others, host.line});
    if (host.most_slots > 0) reading.facts.push_back({host.name, "most slots", std::to_string(host.most_slots), host.line});
  }
  if (names.empty()) throw unreadable(file, 0, 0, "the file names no host.", "Write a line a host: node1 slots=2.");
  for (std::size_t i = 0; i < names.size(); ++i) {
    Device host;
    host.name = names[i];
    host.host = static_cast<int>(i);
    add_device(reading.wiring, std::move(host));
    reading.facts.push_back({names[i], "slots", with_slots ? std::to_string(slots[i]) : "not stated", line_of[i]});
  }
  if (names.size() > 1) {
    Device middle;
    middle.name = "network";
    while (index.contains(middle.name)) middle.name += " (switch)";
    middle.kind = DeviceKind::kSwitch;
    const int at = add_device(reading.wiring, std::move(middle));
    for (std::size_t i = 0; i < names.size(); ++i) add_link(reading.wiring, static_cast<int>(i), at, assumed_network());
    reading.notes.push_back({0, 0, "the file names hosts only; how they are joined is assumed."});
  }
  return reading;
}

}  // namespace wirewise
