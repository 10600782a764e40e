// numactl --hardware and lscpu: the NUMA nodes of one host, those without CPUs too.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "wirewise/base/text.h"
#include "wirewise/wiring/key_lines.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

constexpr int kMostNodes = 4096;
constexpr int kMostCpus = 65536;

/// CPUs as Linux lists them, "0-31,64".
std::string ranges_of(const std::set<int>& cpus) {
  std::string text;
  for (auto cpu = cpus.begin(); cpu != cpus.end();) {
    auto last = cpu;
    while (std::next(last) != cpus.end() && *std::next(last) == *last + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(*cpu) + (last == cpu ? "" : "-" + std::to_string(*last));
    cpu = std::next(last);
  }
  return text;
}

struct Node {
  std::string cpus;
  Bytes memory = 0;
  int line = 0;
};

void add_nodes(const std::map<int, Node>& nodes, const std::string& model, Reading& reading) {
  Device host;
  host.name = "host0";
  host.host = 0;
  host.model = model;
  add_device(reading.wiring, std::move(host));
  std::vector<std::string> bare;
  for (const auto& [number, node] : nodes) {
    Device device;
    device.name = "numa" + std::to_string(number);
    device.kind = DeviceKind::kNumaNode;
    device.host = 0;
    device.numa = number;
    device.cpus = node.cpus;
    device.memory = node.memory;
    if (node.cpus.empty()) bare.push_back(device.name);
    const int at = add_device(reading.wiring, std::move(device));
    add_link(reading.wiring, 0, at, sockets_link("", Provenance::kAssumed));
  }
  if (bare.size() > 8) {
    bare.resize(6);
    bare.emplace_back("…");
  }
  if (!bare.empty()) reading.notes.push_back({0, 0, "these NUMA nodes have no CPUs: " + join(bare, ", ") + "; ranks can't be bound to them."});
}

class NumactlReader {
 public:
  NumactlReader(std::string_view text, std::string_view file) : file_(file), lines_(text_lines(text)) { reading_.format = Format::kNumactl; }

  Reading read() {
    for (const TextLine& line : lines_) read_line(line);
    if (nodes_.empty()) throw unreadable(file_, 0, 0, "there is no NUMA node (node 0 cpus: …).", "Give the whole of what numactl --hardware prints.");
    if (available_ >= 0 && static_cast<std::size_t>(available_) != nodes_.size()) {
      reading_.notes.push_back({1, 0, fmt::format("{} nodes are available, {} described.", available_, nodes_.size())});
      reading_.partial = true;
    }
    add_nodes(nodes_, "", reading_);
    return std::move(reading_);
  }

 private:
  void read_line(const TextLine& line) {
    const auto words = words_of(line);
    if (words.size() >= 2 && words[0].text == "available:") {
      const auto count = parse_integer(words[1].text);
      if (!count || *count < 0 || *count > kMostNodes) throw unreadable(file_, line.number, words[1].column, printable(words[1].text) + " is no number of nodes.");
      available_ = static_cast<int>(*count);
    }
    if (words.size() >= 2 && words[0].text == "node" && words[1].text == "distances:") {
      in_distances_ = true;
      return;
    }
    if (in_distances_) return read_distances(line, words);
    if (words.size() < 3 || words[0].text != "node") return;
    const auto number = parse_integer(words[1].text);
    if (!number || *number < 0 || *number >= kMostNodes) throw unreadable(file_, line.number, words[1].column, printable(words[1].text) + " is no NUMA node.");
    Node& node = nodes_[static_cast<int>(*number)];
    const std::string name = "numa" + words[1].text;
    if (words[2].text == "cpus:") {
      std::set<int> cpus;
      for (std::size_t i = 3; i < words.size(); ++i) {
        const auto cpu = parse_integer(words[i].text);
        if (!cpu || *cpu < 0 || *cpu >= kMostCpus) throw unreadable(file_, line.number, words[i].column, printable(words[i].text) + " is no CPU.");
        cpus.insert(static_cast<int>(*cpu));
      }
      node.cpus = ranges_of(cpus);
      node.line = line.number;
    } else if (words.size() >= 4 && (words[2].text == "size:" || words[2].text == "free:")) {
      const auto size = parse_integer(words[3].text);
      if (!size || *size < 0 || *size > 1LL << 40) throw unreadable(file_, line.number, words[3].column, printable(words[3].text) + " is no size.");
      if (words[2].text == "size:") node.memory = static_cast<Bytes>(*size) * kMiB;
      reading_.facts.push_back({name, words[2].text == "size:" ? "memory" : "free memory", words[3].text + " MiB", line.number});
    }
  }

  void read_distances(const TextLine& line, const std::vector<Word>& words) {
    if (words.empty()) return;
    if (words[0].text == "node") {
      for (std::size_t i = 1; i < words.size(); ++i) distance_nodes_.push_back(words[i].text);
      return;
    }
    if (words[0].text.back() != ':') return;
    const std::string from = words[0].text.substr(0, words[0].text.size() - 1);
    for (std::size_t i = 1; i < words.size() && i <= distance_nodes_.size(); ++i) {
      if (!parse_integer(words[i].text)) throw unreadable(file_, line.number, words[i].column, printable(words[i].text) + " is no distance.");
      reading_.facts.push_back({"numa" + from + "-numa" + distance_nodes_[i - 1], "distance", words[i].text, line.number});
    }
    if (words.size() - 1 < distance_nodes_.size()) {
      reading_.notes.push_back({line.number, 0, "the row of distances is cut off."});
      reading_.partial = true;
    }
  }

  std::string_view file_;
  std::vector<TextLine> lines_;
  Reading reading_;
  std::map<int, Node> nodes_;
  std::vector<std::string> distance_nodes_;
  int available_ = -1;
  bool in_distances_ = false;
};

/// 3 of "NUMA node3 CPU(s)".
bool is_english(const std::string& key) { return key.starts_with("NUMA node") && key.find(" CPU(s)") != std::string::npos; }

/// The node whose CPUs a line lists. Of lscpu in other languages NUMA and the number stay: "NUMA-Knoten0 CPU(s)", "Nœud NUMA 0 de processeur(s)".
std::optional<int> node_of(const KeyLine& pair) {
  const std::string& key = pair.key;
  const std::size_t begin = key.find_first_of("0123456789"), end = std::min(key.find_first_not_of("0123456789", begin), key.size());
  if (key.find("NUMA") == std::string::npos || begin == std::string::npos || key.find_first_of("0123456789", end) != std::string::npos) return std::nullopt;
  if (!is_english(key) && pair.value.find_first_not_of("0123456789,-") != std::string::npos) return std::nullopt;
  const auto number = parse_integer(key.substr(begin, end - begin));
  if (!number || *number < 0 || *number >= kMostNodes) return std::nullopt;
  return static_cast<int>(*number);
}

Reading lscpu(std::string_view text, std::string_view file) {
  Reading reading;
  reading.format = Format::kLscpu;
  std::map<int, Node> nodes;
  std::string model;
  long long stated = -1;
  for (const TextLine& line : text_lines(text)) {
    const auto pair = key_line(line);
    if (!pair) continue;
    if (const auto number = node_of(*pair)) {
      if (nodes.contains(*number)) throw unreadable(file, line.number, 1, "NUMA node " + std::to_string(*number) + " stands there twice.");
      if (pair->value.find_first_not_of("0123456789,-") != std::string::npos) throw unreadable(file, line.number, pair->column, printable(pair->value.substr(0, 60)) + " is no list of CPUs.");
      nodes[*number] = {pair->value, 0, line.number};
      continue;
    }
    if (pair->key.find("NUMA") != std::string::npos && !pair->value.empty()) {
      const auto count = parse_integer(pair->value);
      if (!count && pair->key != "NUMA node(s)") continue;
      if (!count || *count < 0 || *count > kMostNodes) throw unreadable(file, line.number, pair->column, printable(pair->value) + " is no number of nodes.");
      stated = *count;
    }
    for (std::string_view key : {"Model name", "Modellname", "\u578b\u53f7\u540d\u79f0", "\u30e2\u30c7\u30eb\u540d", "Nom de mod\u00e8le", "Nombre del modelo", "Nome do modelo"}) {
      if (pair->key == key) model = pair->value;
    }
    for (std::string_view key : {"Architecture", "CPU(s)", "Thread(s) per core", "Core(s) per socket", "Socket(s)", "Model name", "NUMA node(s)"}) {
      if (pair->key == key) reading.facts.push_back({"host0", pair->key, pair->value, line.number});
    }
  }
  if (nodes.empty()) throw unreadable(file, 0, 0, "there is no NUMA node.", "Give the whole of what lscpu prints.");
  if (stated >= 0 && static_cast<std::size_t>(stated) != nodes.size()) {
    reading.notes.push_back({0, 0, fmt::format("{} NUMA nodes are stated, {} described.", stated, nodes.size())});
    reading.partial = true;
  }
  add_nodes(nodes, model, reading);
  return reading;
}

}  // namespace

bool looks_like_numactl(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) {
    const auto words = words_of(line);
    return words.size() >= 3 && words[0].text == "node" && parse_integer(words[1].text) && (words[2].text == "cpus:" || words[2].text == "size:");
  });
}
bool looks_like_lscpu(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) {
    const auto pair = key_line(line);
    return pair && node_of(*pair);
  });
}

Reading read_numactl(std::string_view text, std::string_view file) { return NumactlReader(text, file).read(); }
Reading read_lscpu(std::string_view text, std::string_view file) { return lscpu(text, file); }

}  // namespace wirewise
