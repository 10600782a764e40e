#include "wirewise/wiring/several_hosts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/base/text.h"
#include "wirewise/wiring/host_texts.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostDevices = 1000000;
constexpr std::size_t kMostNamed = 4;  // hosts in one note

/// Whether a format describes the host that prints it, not a network or a job.
bool of_a_host(Format format) {
  constexpr Format kAll[] = {Format::kNvidiaTopo,   Format::kNcclXml,   Format::kNvidiaQuery, Format::kNvidiaList, Format::kNvlinkStatus, Format::kNvidiaReport, Format::kNvidiaTable,
                             Format::kRocmTopo,     Format::kHwlocXml,  Format::kIbstat,      Format::kIbvDevinfo, Format::kNumactl,      Format::kLscpu,        Format::kSlurmNodes,
                             Format::kJson};
  return std::find(std::begin(kAll), std::end(kAll), format) != std::end(kAll);
}

/// Whether the host's own name stands in what it printed.
bool names_itself(Format format) { return format == Format::kJson || format == Format::kHwlocXml || format == Format::kSlurmNodes; }

class Joining {
 public:
  explicit Joining(std::string_view file) : file_(file) {}

  void add(const HostText& part, const Reading& reading) {
    const bool first = joined_.wiring.devices.empty();
    if (first) joined_.format = reading.format;
    for (const std::string& label : part.hosts) {
      std::string name = part.task ? "task" + label : label;
      tasks_ = tasks_ || part.task;
      const int own = hosts_of(reading.wiring) == 1 ? devices_of(reading.wiring, DeviceKind::kHost).front() : -1;
      if (own == -1) {
        joined_.notes.push_back({part.line, 0, name + " describes " + std::to_string(hosts_of(reading.wiring)) + " hosts; it was left out."});
        joined_.partial = true;
        return;
      }
      if (part.task && names_itself(reading.format)) name = reading.wiring.devices[static_cast<std::size_t>(own)].name;
      if (!names_.insert(name).second) {
        joined_.notes.push_back({part.line, 0, name + " is described again; the first was kept."});
        continue;
      }
      if (joined_.wiring.devices.size() + reading.wiring.devices.size() > kMostDevices) throw unreadable(file_, part.line, 0, "there are more than " + std::to_string(kMostDevices) + " devices.");
      add_graph(reading.wiring, name);
      add_words(part, reading, name, reading.wiring.devices[static_cast<std::size_t>(own)].name);
    }
    joined_.partial = joined_.partial || reading.partial;
  }

  void add_failure(const HostText& part, const std::string& why) {
    std::string names = part.hosts.front();
    if (part.hosts.size() > 1) names += " and " + std::to_string(part.hosts.size() - 1) + " others";
    const std::size_t end = part.text.find('\n');  // what one line says, a shell or ssh does
    const bool one_line = end != std::string::npos && end + 1 == part.text.size() && end < 200;
    joined_.notes.push_back({part.line, 0, (part.task ? "task" : "") + names + ": what it printed " + (one_line ? "is no description: " + part.text.substr(0, end) : "can't be read: " + why)});
    joined_.partial = true;
  }

  Reading finish() {
    for (const auto& [said, hosts] : common_) {
      std::string names = join(std::vector<std::string>(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(std::min(hosts.size(), kMostNamed))), ", ");
      if (hosts.size() > kMostNamed) names += " and " + std::to_string(hosts.size() - kMostNamed) + " others";
      joined_.notes.push_back({0, 0, names + ": " + said.first, said.second});
    }
    if (tasks_) joined_.notes.push_back({0, 0, "labels are numbers of tasks, not names of hosts: tasks of one host stand for as many hosts."});
    if (hosts_ > 1 && networks_.empty()) join_by_network();
    return std::move(joined_);
  }

 private:
  void add_graph(const Wiring& wiring, const std::string& name) {
    std::vector<int> index;
    std::vector<bool> known;  // a network that an earlier host leads to too
    for (Device device : wiring.devices) {
      if (device.host < 0) {
        const auto shared = networks_.find(device.name);
        known.push_back(shared != networks_.end());
        if (known.back()) {
          index.push_back(shared->second);
          continue;
        }
      } else {
        known.push_back(false);
        device.host += hosts_;
        if (device.kind == DeviceKind::kHost) device.name = name;
        else if (device.name == name) device.name += "'";  // as ibstat's mlx5_0 on a host of that name
      }
      const std::string own = device.name;
      const bool network = device.host < 0;
      index.push_back(add_device(joined_.wiring, std::move(device)));
      if (network) networks_[own] = index.back();
    }
    for (Link link : wiring.links) {
      if (known[static_cast<std::size_t>(link.from)] && known[static_cast<std::size_t>(link.to)]) continue;
      link.from = index[static_cast<std::size_t>(link.from)];
      link.to = index[static_cast<std::size_t>(link.to)];
      joined_.wiring.links.push_back(std::move(link));
    }
    host_device_.push_back(index[static_cast<std::size_t>(devices_of(wiring, DeviceKind::kHost).front())]);
    ++hosts_;
  }

  void add_words(const HostText& part, const Reading& reading, const std::string& name, const std::string& own) {
    const auto line_at = [&](int line) { return line >= 1 && static_cast<std::size_t>(line) <= part.lines.size() ? part.lines[static_cast<std::size_t>(line) - 1] : 0; };
    for (Fact fact : reading.facts) {
      fact.subject = fact.subject == own ? name : name + " " + fact.subject;
      fact.line = line_at(fact.line);
      joined_.facts.push_back(std::move(fact));
    }
    for (const Note& note : reading.notes) {
      if (line_at(note.line) == 0) common_[{note.text, note.remedy}].push_back(name);
      else joined_.notes.push_back({line_at(note.line), 0, name + ": " + note.text, note.remedy});
    }
  }

  void join_by_network() {
    Device middle;
    middle.name = "network";
    while (names_.contains(middle.name)) middle.name += " (switch)";
    middle.kind = DeviceKind::kSwitch;
    const int at = add_device(joined_.wiring, std::move(middle));
    for (const int host : host_device_) add_link(joined_.wiring, host, at, assumed_network());
    joined_.notes.push_back({0, 0, "how the hosts are joined isn't said; 10 Gbit/s Ethernet is assumed."});
  }

  std::string_view file_;
  Reading joined_;
  std::set<std::string> names_;
  std::map<std::string, int> networks_;
  std::vector<int> host_device_;
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> common_;  // notes on no line with their remedies, and whose
  int hosts_ = 0;
  bool tasks_ = false;
};

}  // namespace

std::optional<Reading> read_several_hosts(std::string_view text, std::string_view file, const std::function<Reading(std::string_view, std::string_view)>& read) {
  const std::vector<HostText> parts = host_texts(text);
  const auto recognised = [&](const HostText& part) {
    try {
      return of_a_host(recognise(part.text, file));
    } catch (const Error&) {
      return false;
    }
  };
  if (std::none_of(parts.begin(), parts.end(), recognised)) return std::nullopt;
  const bool alone = parts.size() == 1 && parts.front().alone;
  if (alone && recognised({{}, std::string(text), {}})) return std::nullopt;  // the label is a part of the output
  Joining joining(file);
  std::optional<Error> failure;
  bool any = false;
  for (const HostText& part : parts) {
    try {
      const Reading reading = read(part.text, std::string(file) + " (" + part.hosts.front() + ")");
      if (!of_a_host(reading.format)) {
        joining.add_failure(part, "it is no description of a host.");
        continue;
      }
      joining.add(part, reading);
      any = true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBadInput) throw;
      if (!failure) failure = error;
      joining.add_failure(part, std::string(error.sentence()));
    }
  }
  if (!any) throw *failure;
  Reading joined = joining.finish();
  if (alone) joined.notes.push_back({0, 0, "all lines begin with " + printable(parts.front().hosts.front()) + ", which is taken for the host's name."});
  return joined;
}

}  // namespace wirewise
