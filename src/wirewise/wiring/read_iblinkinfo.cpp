// iblinkinfo: every port of an InfiniBand fabric and what its cable leads to. By default under heads, a switch's or adapter's ("Switch:
// 0x… name:", "CA: host device:"), where the far end is told by its LID; with -l in lines of their own, where both ends have their GUIDs.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>

#include "wirewise/base/text.h"
#include "wirewise/wiring/ib_fabric.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr std::string_view kBegin = "==(", kEnd = ")==>";

/// "0x0002c9020046c588"; empty when it is no GUID.
std::string guid_of(std::string_view text) {
  const bool hex = text.size() > 2 && text.size() <= 18 && text.starts_with("0x") && text.find_first_not_of("0123456789abcdefABCDEF", 2) == std::string_view::npos;
  return hex ? lower_case(text.substr(2)) : std::string();
}

/// One end of a cable: "0x0002c9020046c588 "leaf" 2 5[  ]", of which some parts may be missing.
struct End {
  std::string guid, label;
  int lid = -1, port = -1;
};

std::optional<int> small(std::string_view text) {
  const auto number = parse_integer(trimmed(text));
  return number && *number >= 0 && *number < 1 << 20 ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

/// The label stands in quotes, before LID and port on the near end, behind them on the far one.
std::optional<End> end_of(std::string_view text) {
  End end;
  if (const std::size_t open = text.find('"'); open != std::string_view::npos) {
    const std::size_t close = text.find('"', open + 1);
    if (close == std::string_view::npos) return std::nullopt;
    end.label = trimmed(text.substr(open + 1, close - open - 1));
    std::string rest(text.substr(0, open));
    if (trimmed(rest).find('[') == std::string_view::npos) rest += text.substr(close + 1);
    const std::size_t bracket = rest.find('[');
    if (bracket == std::string::npos) return std::nullopt;
    const auto inner = end_of(rest.substr(0, bracket + 1));
    if (!inner) return std::nullopt;
    end.guid = inner->guid;
    end.lid = inner->lid;
    end.port = inner->port;
    return end;
  }
  const std::size_t bracket = text.find('[');
  if (bracket == std::string_view::npos) return std::nullopt;
  std::vector<std::string> words;
  for (const std::string& word : split(text.substr(0, bracket), ' ')) {
    for (const std::string& part : split(word, '\t')) {
      if (!part.empty()) words.push_back(part);
    }
  }
  for (const std::string& word : words) {
    if (const std::string guid = guid_of(word); !guid.empty() && end.guid.empty() && end.lid == -1) end.guid = guid;
    else if (const auto number = small(word); number && end.lid == -1) end.lid = *number;
    else if (number && end.port == -1) end.port = *number;
    else return std::nullopt;
  }
  return end;
}

struct Port {
  std::string node;  // named below; empty: not yet known
  End near, far;
  int line = 0;
  bool up = false;
  std::string state, rate, warning;  // "Active/LinkUp", "4xEDR", "Could be 25.78125 Gbps"
  double gbit = 0;
};

/// Whether a label looks like an adapter's though it may name no host: "node1 mlx5_0", "HCA-1", "hfi1_0".
bool like_adapter(std::string_view label) {
  const std::string_view last = label.substr(label.rfind(' ') == std::string_view::npos ? 0 : label.rfind(' ') + 1);
  constexpr std::string_view kStarts[] = {"mlx", "HCA-", "hfi", "qib", "mthca", "ib_", "ibp", "rocep", "roce"};
  return std::any_of(std::begin(kStarts), std::end(kStarts), [&](std::string_view start) { return last.starts_with(start); });
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : file_(file), lines_(text_lines(text)) { reading_.format = Format::kIblinkinfo; }

  Reading read() {
    for (const TextLine& line : lines_) read_line(line);
    if (ports_.empty()) throw unreadable(file_, 0, 0, "there is no port.", "Give the whole of what iblinkinfo prints.");
    name_near_ends();
    join_ends();
    describe_ports();
    add_fabric(fabric_, reading_);
    return std::move(reading_);
  }

 private:
  void wrong(int line, std::string text, std::string remedy) { reading_.notes.push_back({line, 0, std::move(text), std::move(remedy)}); }

  void note(int line, std::string text, bool partial = false) {
    reading_.notes.push_back({line, 0, std::move(text)});
    reading_.partial = reading_.partial || partial;
  }

  void read_line(const TextLine& line) {
    const std::string_view text = trimmed(line.text);
    if (text.starts_with("Switch:") || text.starts_with("Switch 0x") || text.starts_with("CA:") || text.starts_with("Router:")) return read_head(text);
    const std::size_t begin = line.text.find(kBegin), end = line.text.find(kEnd, begin == std::string::npos ? 0 : begin);
    if (begin == std::string::npos) return;
    const bool last = &line == &lines_.back() && !line.ended;
    const auto near = end_of(std::string_view(line.text).substr(0, begin));
    const auto far = end == std::string::npos ? std::nullopt : end_of(std::string_view(line.text).substr(end + kEnd.size()));
    if (!near || !far || near->port < 0) {
      if (last) return note(line.number, "the last line is cut off.", true);
      throw unreadable(file_, line.number, line.column[begin], "this is no port: " + printable(text.substr(0, 60)), "Ports look like 2 5[  ] ==( 4X 25.78125 Gbps Active/  LinkUp)==> 7 1[  ] \"node01 mlx5_0\" ( ).");
    }
    Port port;
    port.near = *near;
    port.far = *far;
    port.line = line.number;
    if (port.near.label.empty()) port.near.label = head_.label;
    head_of_.push_back(head_);
    read_state(std::string_view(line.text).substr(begin + kBegin.size(), end - begin - kBegin.size()), port);
    if (const std::size_t warning = line.text.find("Could be", end); warning != std::string::npos) {
      port.warning = trimmed(std::string_view(line.text).substr(warning, line.text.rfind(')') > warning && line.text.rfind(')') != std::string::npos ? line.text.rfind(')') - warning : std::string::npos));
    }
    ports_.push_back(std::move(port));
  }

  /// "Switch: 0x0002c9020046c588 MF0;leaf1:QM8700/U1:", "CA: node01 mlx5_0:".
  void read_head(std::string_view text) {
    head_ = {};
    head_.number = ++heads_;
    head_.is_switch = !text.starts_with("CA:");
    text = trimmed(text.substr(text.find_first_of(": ") + 1));
    if (text.ends_with(':')) text.remove_suffix(1);
    const std::size_t blank = text.find_first_of(" \t");
    if (std::string guid = guid_of(text.substr(0, blank)); !guid.empty()) {
      head_.guid = std::move(guid);
      text = blank == std::string_view::npos ? std::string_view{} : trimmed(text.substr(blank));
    }
    head_.label = trimmed(text);
  }

  /// " 4X       25.78125 Gbps Active/  LinkUp", "                Down/ Polling".
  static void read_state(std::string_view text, Port& port) {
    std::vector<std::string> words;
    for (const std::string& word : split(text, ' ')) {
      if (!word.empty()) words.push_back(word);
    }
    std::size_t at = 0;
    long long lanes = 0;
    if (at < words.size() && words[at].size() > 1 && words[at].back() == 'X') lanes = parse_integer(words[at].substr(0, words[at].size() - 1)).value_or(0);
    if (lanes > 0) ++at;
    std::string speed;
    if (at + 1 < words.size() && words[at + 1].starts_with("Gbps")) {
      speed = ib_speed_name(std::strtod(words[at].c_str(), nullptr));
      at += 2;
    } else if (at < words.size() && ib_lane_rate(words[at])) {
      speed = words[at++];
    }
    for (; at < words.size(); ++at) port.state += words[at];
    port.up = port.state.ends_with("LinkUp");
    if (lanes < 1 || lanes > 12 || speed.empty()) return;
    port.rate = std::to_string(lanes) + "x" + speed;
    port.gbit = static_cast<double>(lanes) * ib_lane_rate(speed).value_or(0);
  }

  /// What each port's own switch or adapter is. Heads say it; in lines a GUID with several ports is a switch's, as adapters' ports have their own.
  void name_near_ends() {
    std::map<std::string, std::set<int>> ports_of;
    for (const Port& port : ports_) {
      if (!port.near.guid.empty()) ports_of[port.near.guid].insert(port.near.port);
    }
    std::map<std::string, std::string> adapters;  // by label, where it names a host: both ports of an adapter are one
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      Port& port = ports_[i];
      const Head& head = head_of_[i];
      const std::string guid = head.guid.empty() ? port.near.guid : head.guid;
      const bool is_switch = head.number > 0 ? head.is_switch : guid.empty() || ports_of[guid].size() > 2 || (!like_adapter(port.near.label) && (ports_of[guid].size() > 1 || port.near.port > 2));
      if (is_switch) {
        port.node = guid.empty() ? "S-lid" + std::to_string(std::max(port.near.lid, 0)) : "S-" + guid;
      } else {
        const std::string own = guid.empty() ? "H-lid" + std::to_string(std::max(port.near.lid, 0)) : "H-" + guid;
        port.node = names_host(port.near.label) ? adapters.try_emplace(port.near.label, own).first->second : own;
        if (port.node != own && lines_of_.contains({port.node, port.near.port})) {  // two adapters say the same of themselves
          note(port.line, "another adapter calls itself " + printable(port.near.label) + "; it may be in another host.");
          port.node = own;
        }
      }
      IbNode& node = fabric_.node(port.node, file_, port.line);
      node.is_switch = is_switch;
      node.described = true;
      if (node.label.empty()) node.label = port.near.label;
      if (!port.near.guid.empty()) by_guid_[port.near.guid] = port.node;
      if (port.near.lid > 0) by_lid_[port.near.lid] = port.node;
      if (const auto [same, fresh] = lines_of_.try_emplace({port.node, port.near.port}, port.line); !fresh) {
        throw unreadable(file_, port.line, 0, "port " + std::to_string(port.near.port) + " of " + printable(shown(port.node)) + " stands there twice; the first is line " + std::to_string(same->second) + ".", "Give the output of one run.");
      }
    }
  }

  /// The node at a cable's far end; one that the output doesn't describe (a partial scan) is made up of what the end says.
  std::string far_node(const Port& port) {
    const auto known = [&](const std::string& name) {
      IbNode& node = fabric_.nodes.at(name);
      if (node.label.empty()) node.label = port.far.label;  // its head isn't there
      return name;
    };
    if (const auto found = by_guid_.find(port.far.guid); !port.far.guid.empty() && found != by_guid_.end()) return known(found->second);
    if (const auto found = by_lid_.find(port.far.lid); port.far.guid.empty() && found != by_lid_.end()) return known(found->second);
    const bool adapter = like_adapter(port.far.label) || (fabric_.nodes.at(port.node).is_switch && port.far.port <= 2 && names_host(port.far.label));
    const std::string name = (adapter ? "H-" : "S-") + (port.far.guid.empty() ? "lid" + std::to_string(port.far.lid) : port.far.guid);
    IbNode& node = fabric_.node(name, file_, port.line);
    if (node.label.empty()) node.label = port.far.label;
    if (!port.far.guid.empty()) by_guid_[port.far.guid] = name;
    else by_lid_[port.far.lid] = name;
    ++made_up_;
    return name;
  }

  void join_ends() {
    for (const Port& port : ports_) {
      if (!port.up || port.far.port < 0 || (port.far.lid <= 0 && port.far.guid.empty())) continue;
      if (port.near.port == 0) continue;  // a switch's own
      IbCable cable{port.node, far_node(port), port.near.port, port.far.port, port.line, port.gbit, port.rate};
      if (cable.rate.empty()) note(port.line, "the link's width and speed are missing; 4xHDR is assumed.");
      fabric_.add(std::move(cable), file_);
    }
    if (made_up_ > 0) note(0, std::to_string(made_up_) + " switches and adapters are named at the end of a link, but not described: the output is a part of the fabric's.", true);
  }

  [[nodiscard]] std::string shown(const std::string& node) const {
    const std::string& label = fabric_.nodes.at(node).label;
    return label.empty() ? node : label;
  }

  void describe_ports() {
    std::map<std::string, std::map<std::string, int>> down;  // by switch, by state
    for (const Port& port : ports_) {
      const std::string name = shown(port.node) + " port " + std::to_string(port.near.port);
      if (!port.warning.empty()) {
        std::string warning = port.warning;
        warning[0] = 'c';
        wrong(port.line, name + (port.rate.empty() ? "" : " runs at " + port.rate + " and") + " " + warning + ".", "Seat the cable again at both ends, clean it, look at ibqueryerrors; then another cable or port.");
      }
      if (port.up && !port.state.starts_with("Active")) wrong(port.line, name + " is " + port.state + ": the cable carries, but no subnet manager has brought it up.", "Start one (opensm), or look why the running one leaves the port out.");
      if (port.up) continue;
      if (!fabric_.nodes.at(port.node).is_switch) note(port.line, name + " is " + port.state + ".");
      ++down[port.node][port.state];
    }
    for (const auto& [node, states] : down) {
      for (const auto& [state, count] : states) reading_.facts.push_back({shown(node), "ports " + state, std::to_string(count), 0});
    }
  }

  struct Head {
    int number = 0;  // 0: none has been read
    bool is_switch = false;
    std::string guid, label;
  };
  std::string_view file_;
  std::vector<TextLine> lines_;
  Reading reading_;
  Head head_;
  int heads_ = 0;
  std::vector<Head> head_of_;  // of each port
  std::vector<Port> ports_;
  IbFabric fabric_;
  std::map<std::string, std::string> by_guid_;
  std::map<int, std::string> by_lid_;
  std::map<std::pair<std::string, int>, int> lines_of_;
  std::size_t made_up_ = 0;
};

}  // namespace

bool looks_like_iblinkinfo(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) {
    const std::size_t begin = line.text.find(kBegin);
    return begin != std::string::npos && line.text.find(kEnd, begin) != std::string::npos;
  });
}

Reading read_iblinkinfo(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

}  // namespace wirewise
