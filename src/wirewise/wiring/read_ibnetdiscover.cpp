// ibnetdiscover: an InfiniBand fabric, a paragraph a switch or adapter with its ports, what each leads to, and the link's width and speed.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "wirewise/base/text.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostNodes = 200000;
constexpr std::size_t kMostLinks = 1000000;

/// Gbit/s a lane; "4xHDR" is four times 50.
std::optional<double> lane_rate(std::string_view speed) {
  static const std::map<std::string_view, double> rates{{"SDR", 2.5}, {"DDR", 5}, {"QDR", 10}, {"FDR10", 10}, {"FDR", 14}, {"EDR", 25}, {"HDR", 50}, {"NDR", 100}, {"XDR", 200}};
  const auto found = rates.find(speed);
  return found == rates.end() ? std::nullopt : std::optional(found->second);
}

/// The text between the first two quotes from `at` on, and where it stands.
struct Quoted {
  std::string text;
  std::size_t begin = 0, end = 0;  // of the quotes
};
std::optional<Quoted> quoted(const std::string& line, std::size_t at) {
  const std::size_t open = line.find('"', at);
  const std::size_t close = open == std::string::npos ? open : line.find('"', open + 1);
  if (close == std::string::npos) return std::nullopt;
  return Quoted{line.substr(open + 1, close - open - 1), open, close};
}

/// "[17]" at `at`.
std::optional<int> bracketed(const std::string& line, std::size_t at) {
  const std::size_t close = line.find(']', at);
  if (at >= line.size() || line[at] != '[' || close == std::string::npos || close - at > 6) return std::nullopt;
  const auto number = parse_integer(std::string_view(line).substr(at + 1, close - at - 1));
  if (!number || *number < 0 || *number > 1023) return std::nullopt;
  return static_cast<int>(*number);
}

struct Node {
  bool is_switch = false, described = false;
  std::string label;  // what stands behind # in quotes
  int ports = 0, device = -1, line = 0;
  std::string host;   // of an adapter
};

struct Wire {
  std::string from, to;
  int port = 0, line = 0;
  int far_port = 0;
  double gbit = 0;
  std::string rate;
};

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : file_(file), lines_(text_lines(text)) { reading_.format = Format::kIbnetdiscover; }

  Reading read() {
    for (const TextLine& line : lines_) read_line(line);
    if (nodes_.empty()) throw unreadable(file_, 0, 0, "there is no switch and no adapter.", "Give the whole of what ibnetdiscover prints.");
    std::size_t missing = 0;
    for (const std::string& id : order_) missing += nodes_[id].described ? 0 : 1;
    if (missing > 0) note(0, 0, std::to_string(missing) + " switches and adapters are named at the end of a link, but not described: the output is cut off.", true);
    add_devices();
    add_wires();
    return std::move(reading_);
  }

 private:
  void note(int line, int column, std::string text, bool partial = false) {
    reading_.notes.push_back({line, column, std::move(text)});
    reading_.partial = reading_.partial || partial;
  }

  Node& node(const std::string& id, const TextLine& line) {
    const auto [found, fresh] = nodes_.try_emplace(id);
    if (fresh) {
      if (nodes_.size() > kMostNodes) throw unreadable(file_, line.number, 0, "there are more than " + std::to_string(kMostNodes) + " switches and adapters.");
      found->second.is_switch = id[0] == 'S';
      found->second.line = line.number;
      order_.push_back(id);
    }
    return found->second;
  }

  /// A switch's or adapter's name: "S-" or "H-" (or "R-", a router) and a GUID.
  static bool is_id(const std::string& id) { return id.size() > 2 && id.size() < 40 && (id[0] == 'S' || id[0] == 'H' || id[0] == 'R') && id[1] == '-'; }

  [[nodiscard]] bool cut(const TextLine& line) const { return &line == &lines_.back() && !line.ended; }

  void read_line(const TextLine& line) {
    const std::string& text = line.text;
    const auto words = words_of(line);
    if (words.empty()) return;
    if (words[0].text == "Switch" || words[0].text == "Ca" || words[0].text == "Rt") return read_head(line, words);
    if (words[0].text[0] != '[') {
      if (words[0].text == "Non-Chassis" || words[0].text == "Chassis" || words[0].text == "ibwarn:" || words[0].text == "src/query_smp.c") return;  // heads of -g, and complaints
      if (words[0].text[0] != '#' && text.find('=') == std::string::npos && !cut(line)) throw unreadable(file_, line.number, words[0].column, printable(words[0].text.substr(0, 60)) + " belongs to no switch, adapter or port.");
      return;
    }
    if (current_.empty()) throw unreadable(file_, line.number, words[0].column, "a port stands before any switch or adapter.");
    read_port(line);
  }

  void read_head(const TextLine& line, const std::vector<Word>& words) {
    const auto id = quoted(line.text, 0);
    if (!id || !is_id(id->text)) {
      if (cut(line)) return note(line.number, 0, "the last line is cut off.", true);
      throw unreadable(file_, line.number, words[0].column, words[0].text + " has no name like \"S-0002c90200000001\".");
    }
    Node& one = node(id->text, line);
    if (one.described) throw unreadable(file_, line.number, line.column[id->begin], printable(id->text) + " is described twice.");
    one.described = true;
    one.is_switch = words[0].text == "Switch" || words[0].text == "Rt";
    one.line = line.number;
    if (const std::size_t comment = line.text.find('#', id->end); comment != std::string::npos) {
      if (const auto label = quoted(line.text, comment)) one.label = label->text;
    }
    current_ = id->text;
  }

  /// [1]  "H-…"[1](…)  # "node01 mlx5_0" lid 3 4xHDR
  void read_port(const TextLine& line) {
    const std::string& text = line.text;
    const std::size_t open = text.find('[');
    const auto port = bracketed(text, open);
    const auto to = quoted(text, open);
    const auto far_port = to ? bracketed(text, to->end + 1) : std::nullopt;
    const std::size_t comment = to ? text.find('#', to->end) : std::string::npos;
    if (!port || !to || !is_id(to->text) || !far_port || comment == std::string::npos) {
      if (cut(line)) return note(line.number, 0, "the last line is cut off.", true);
      throw unreadable(file_, line.number, line.column[open], "this is no port: " + printable(std::string(trimmed(text)).substr(0, 60)), "Ports look like [1] \"H-0002c90300000001\"[1] # \"node01 mlx5_0\" lid 3 4xHDR.");
    }
    Node& other = node(to->text, line);
    const auto label = quoted(text, comment);
    if (other.label.empty() && label) other.label = label->text;
    if (++ports_[{current_, *port}] > 1) throw unreadable(file_, line.number, line.column[open], "port " + std::to_string(*port) + " stands there twice.");
    Wire wire{current_, to->text, *port, line.number, *far_port, 0, ""};
    const auto words = words_of(line);
    for (std::size_t i = words.size(); i-- > 0 && wire.rate.empty();) {
      const std::string& word = words[i].text;
      const std::size_t cross = word.find('x');
      const auto lanes = parse_integer(std::string_view(word).substr(0, cross == std::string::npos ? 0 : cross));
      const auto rate = cross == std::string::npos ? std::nullopt : lane_rate(std::string_view(word).substr(cross + 1));
      if (!lanes || !rate || *lanes < 1 || *lanes > 12) continue;
      wire.rate = word;
      wire.gbit = static_cast<double>(*lanes) * *rate;
    }
    if (wire.rate.empty()) note(line.number, 0, "the link's width and speed are missing; 4xHDR is assumed.", cut(line));
    if (wires_.size() >= kMostLinks) throw unreadable(file_, line.number, 0, "there are more than " + std::to_string(kMostLinks) + " ports.");
    wires_.push_back(std::move(wire));
  }

  /// "node01 mlx5_0" is the adapter mlx5_0 of the host node01. Labels that firmware gave name no host.
  void place(const std::string& id, Node& one) const {
    const std::size_t blank = one.label.rfind(' ');
    const bool host = blank != std::string::npos && one.label.find(' ') == blank && blank > 0;
    one.host = host ? one.label.substr(0, blank) : id;
  }

  void add_devices() {
    std::map<std::string, int> host_index;
    std::set<std::string> taken;
    for (const std::string& id : order_) {
      Node& one = nodes_[id];
      if (one.is_switch) continue;
      place(id, one);
      if (host_index.contains(one.host)) continue;
      const int index = static_cast<int>(host_index.size());
      Device host;
      host.name = one.host;
      host.host = index;
      host_index[one.host] = index;
      host_device_[one.host] = add_device(reading_.wiring, std::move(host));
    }
    const std::map<std::string, int> level = levels();
    std::set<std::pair<int, std::string>> nic_names;
    for (const std::string& id : order_) {
      Node& one = nodes_[id];
      Device device;
      device.model = one.label;
      if (one.is_switch) {
        device.kind = DeviceKind::kSwitch;
        device.name = id;
        device.level = level.at(id);
      } else {
        device.kind = DeviceKind::kNic;
        device.host = host_index.at(one.host);
        device.placed = false;
        device.name = one.host == id ? "nic0" : one.label.substr(one.label.rfind(' ') + 1);
        if (device.name.empty() || !nic_names.emplace(device.host, device.name).second) device.name = id;
      }
      const int host = device.host;
      one.device = add_device(reading_.wiring, std::move(device));
      if (host >= 0) add_link(reading_.wiring, host_device_.at(one.host), one.device, pcie_link(0, 0, Provenance::kAssumed));
    }
    std::size_t unnamed = 0;
    for (const std::string& id : order_) unnamed += !nodes_[id].is_switch && nodes_[id].host == id ? 1 : 0;
    if (unnamed > 0) note(0, 0, std::to_string(unnamed) + " adapters don't say which host they are in; each stands as a host of its own, named by its GUID.");
  }

  /// Leaves have adapters (but for the reduction nodes that sit in every switch); others are as high as they are far from a leaf.
  std::map<std::string, int> levels() const {
    std::map<std::string, std::set<std::string>> near;
    std::map<std::string, int> level;
    std::vector<std::string> reached;
    for (const Wire& wire : wires_) {
      for (const auto& [a, b] : {std::pair{wire.from, wire.to}, std::pair{wire.to, wire.from}}) {
        const Node& other = nodes_.at(b);
        if (!nodes_.at(a).is_switch) continue;
        if (other.is_switch) near[a].insert(b);
        else if (other.label.find("Aggregation Node") == std::string::npos && level.emplace(a, 0).second) reached.push_back(a);
      }
    }
    for (std::size_t i = 0; i < reached.size(); ++i) {
      const std::string at = reached[i];
      for (const std::string& other : near[at]) {
        if (level.emplace(other, level[at] + 1).second) reached.push_back(other);
      }
    }
    for (const std::string& id : order_) {
      if (nodes_.at(id).is_switch) level.emplace(id, 0);
    }
    return level;
  }

  /// Each cable once, though both of its ends may be described.
  void add_wires() {
    std::set<std::pair<std::pair<std::string, int>, std::pair<std::string, int>>> seen;
    std::map<std::string, int> count;
    for (const Wire& wire : wires_) {
      const std::pair a{wire.from, wire.port}, b{wire.to, wire.far_port};
      if (!seen.emplace(std::min(a, b), std::max(a, b)).second) continue;
      if (wire.from == wire.to) {
        note(wire.line, 0, "a cable leads from " + printable(wire.from) + " back to it; it joins nothing and was left out.");
        continue;
      }
      const bool known = wire.gbit > 0;
      Link link = network_link(LinkKind::kInfiniband, known ? wire.gbit : 200, true, known ? Provenance::kDriver : Provenance::kAssumed);
      add_link(reading_.wiring, nodes_.at(wire.from).device, nodes_.at(wire.to).device, std::move(link));
      ++count[known ? wire.rate : "unknown rate"];
    }
    for (const auto& [rate, cables] : count) reading_.facts.push_back({"cables", rate, std::to_string(cables), 0});
  }

  std::string_view file_;
  std::vector<TextLine> lines_;
  Reading reading_;
  std::map<std::string, Node> nodes_;
  std::vector<std::string> order_;
  std::map<std::pair<std::string, int>, int> ports_;
  std::vector<Wire> wires_;
  std::map<std::string, int> host_device_;
  std::string current_;
};

}  // namespace

bool looks_like_ibnetdiscover(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) {
    const auto words = words_of(line);
    return words.size() >= 3 && (words[0].text == "Switch" || words[0].text == "Ca") && parse_integer(words[1].text) && words[2].text.size() > 3 && words[2].text[0] == '"' && words[2].text[2] == '-';
  });
}

Reading read_ibnetdiscover(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

}  // namespace wirewise
