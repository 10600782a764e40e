// Nodes as Slurm's slurm.conf, `slurmd -C` and `scontrol show node` describe them: NodeName=n[01-16] CPUs=… Gres=gpu:8. Names and what each
// has; how nodes are joined is topology.conf's.
#include <algorithm>
#include <map>

#include "wirewise/base/node_list.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/slurm_topology.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr std::string_view kFirst = "nodename=";

/// Where "NodeName=" stands in a line, at its start or behind "scontrol create "; npos: nowhere.
std::size_t node_at(const TextLine& line) {
  const std::size_t at = lower_case(line.text).find(kFirst);
  if (at == std::string::npos) return at;
  const std::string_view before = trimmed(std::string_view(line.text).substr(0, at));
  return before.empty() || before.starts_with("scontrol create") ? at : std::string::npos;
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : file_(file), lines_(text_lines(text)) { reading_.format = Format::kSlurmNodes; }

  Reading read() {
    bool continued = false;
    for (const TextLine& line : lines_) {
      const std::size_t at = node_at(line);
      // scontrol breaks a node's description into indented lines, slurm.conf with a backslash.
      const bool more = continued || (open_ && at == std::string::npos && !line.text.empty() && line.text[0] == ' ');
      if (at != std::string::npos) begin(line, at);
      else if (more) take(line.text.substr(0, line.text.find('#')));
      else open_ = false;
      continued = open_ && trimmed(line.text).ends_with("\\");
    }
    if (index_.empty()) throw unreadable(file_, 0, 0, "it names no node.", "A line of slurm.conf is NodeName=n[01-16] CPUs=64 Gres=gpu:8.");
    join_hosts();
    return std::move(reading_);
  }

 private:
  void begin(const TextLine& line, std::size_t at) {
    names_.clear();
    line_ = line.number;
    open_ = true;
    const std::size_t start = at + kFirst.size(), end = std::min(line.text.find_first_of(" \t#", start), line.text.size());
    const std::string list = line.text.substr(start, end - start);
    if (list == "DEFAULT") return;  // what follows is of the nodes after it
    const auto fault = expand_node_list(list, names_, kMostSlurmNodes - std::min(kMostSlurmNodes, index_.size()));
    if (fault) throw unreadable(file_, line.number, line.column[std::min(start + fault->offset, line.text.size() - 1)], fault->what + ".", "A list looks like n[001-003,7],login.");
    for (const std::string& name : names_) {
      if (!index_.try_emplace(name, static_cast<int>(index_.size())).second) {
        throw unreadable(file_, line.number, line.column[start], printable(name) + " is described twice; the first is line " + std::to_string(line_of_[name]) + ".");
      }
      line_of_[name] = line.number;
      Device host;
      host.name = name;
      host.host = index_[name];
      add_device(reading_.wiring, std::move(host));
    }
    shown_ = list;
    take(line.text.substr(end, line.text.find('#', end) == std::string::npos ? std::string::npos : line.text.find('#', end) - end));
  }

  void take(const std::string& text) {
    static const std::vector<std::string> wanted{"gres", "cpus", "cputot", "boards", "sockets", "socketsperboard", "corespersocket", "threadspercore", "realmemory", "state", "nodeaddr", "nodehostname", "topology", "features", "feature"};
    TextLine line;
    line.text = text;
    line.column.assign(text.size(), 0);
    for (const Word& word : words_of(line)) {
      const std::size_t equals = word.text.find('=');
      if (equals == std::string::npos || equals + 1 == word.text.size()) continue;
      const std::string key = lower_case(word.text.substr(0, equals));
      if (std::find(wanted.begin(), wanted.end(), key) == wanted.end() || names_.empty()) continue;
      reading_.facts.push_back({shown_, word.text.substr(0, equals), word.text.substr(equals + 1), line_});
    }
  }

  void join_hosts() {
    reading_.notes.push_back({0, 0, "the file names nodes only; how they are joined is assumed. topology.conf or topology.yaml says it."});
    if (index_.size() < 2) return;
    Device middle;
    middle.name = "network";
    while (index_.contains(middle.name)) middle.name += " (switch)";
    middle.kind = DeviceKind::kSwitch;
    const int hosts = static_cast<int>(index_.size());
    const int at = add_device(reading_.wiring, std::move(middle));
    for (int host = 0; host < hosts; ++host) add_link(reading_.wiring, host, at, assumed_network());
  }

  std::string_view file_;
  std::vector<TextLine> lines_;
  Reading reading_;
  std::map<std::string, int> index_, line_of_;
  std::vector<std::string> names_;  // of the description that is read
  std::string shown_;
  int line_ = 0;
  bool open_ = false;
};

}  // namespace

bool looks_like_slurm_nodes(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) { return node_at(line) != std::string::npos; });
}

Reading read_slurm_nodes(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

}  // namespace wirewise
