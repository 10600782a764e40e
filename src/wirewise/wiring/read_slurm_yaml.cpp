// Slurm's topology.yaml: a list of topologies (tree, block, ring, flat), of which the cluster's default makes the graph.
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "wirewise/base/nearest.h"
#include "wirewise/base/node_list.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/slurm_topology.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostBytes = 8 << 20;
constexpr int kDeepest = 32;              // brackets within each other, or dashes in one line
constexpr std::size_t kWidestIndent = 200;
constexpr std::size_t kMostTopologies = 1000;

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : text_(text), file_(file) { reading_.format = Format::kSlurmYaml; }

  Reading read() {
    refuse_deep();
    YAML::Node root;
    try {
      root = YAML::Load(std::string(text_));
    } catch (const YAML::Exception& error) {
      throw unreadable(file_, error.mark.line + 1, error.mark.column + 1, "this is no YAML: " + printable(error.msg) + ".");
    }
    if (!root.IsSequence() || root.size() == 0) throw refuse(root, "a list of topologies is missing.", "It starts with - topology: NAME.");
    if (root.size() > kMostTopologies) throw refuse(root, "there are more than " + std::to_string(kMostTopologies) + " topologies.");
    std::vector<std::string> names;
    std::size_t chosen = root.size();
    std::vector<bool> is_default;
    for (const YAML::Node& one : root) {
      names.push_back(read_head(one, is_default));
      if (std::count(names.begin(), names.end(), names.back()) > 1) throw refuse(one, "the topology " + printable(names.back()) + " stands there twice.");
      if (is_default.back() && chosen == root.size()) chosen = names.size() - 1;
    }
    if (chosen == root.size()) {
      chosen = 0;
      if (root.size() > 1) note(root[0], "no topology is the cluster's default; the first is shown, " + names[0] + ".");
    } else if (root.size() > 1) {
      note(root[chosen], "of " + std::to_string(root.size()) + " topologies the cluster's default is shown, " + names[chosen] + ".");
    }
    for (std::size_t i = 0; i < root.size(); ++i) {
      SlurmTopology topology;
      const std::string kind = read_topology(root[i], topology);
      reading_.facts.push_back({names[i], "topology", kind + (is_default[i] ? ", default" : ""), root[i].Mark().line + 1});
      if (i == chosen) chosen_ = std::move(topology);
    }
    add_slurm_topology(chosen_, file_, reading_);
    return std::move(reading_);
  }

 private:
  void note(const YAML::Node& node, std::string text) { reading_.notes.push_back({node.Mark().line + 1, node.Mark().column + 1, std::move(text)}); }

  [[nodiscard]] Error refuse(const YAML::Node& node, const std::string& what, const std::string& remedy = {}) const {
    return unreadable(file_, std::max(0, node.Mark().line + 1), std::max(0, node.Mark().column + 1), what, remedy);
  }

  /// The parser calls itself for each level: what is deeper than any topology never reaches it. Anchors have no place in these files.
  void refuse_deep() const {
    if (text_.size() > kMostBytes) throw unreadable(file_, 0, 0, "the file is larger than 8 MiB.");
    int depth = 0;
    for (const TextLine& line : text_lines(text_)) {
      int dashes = 0;
      std::size_t start = 0;
      while (start < line.text.size() && (line.text[start] == ' ' || line.text[start] == '\t' || line.text[start] == '-' || line.text[start] == '?' || line.text[start] == ':')) {
        dashes += line.text[start] == '-' || line.text[start] == '?' || line.text[start] == ':' ? 1 : 0;
        ++start;
      }
      if (dashes > kDeepest || start > kWidestIndent) throw unreadable(file_, line.number, 1, "this is nested too deep for a topology.");
      for (std::size_t i = 0; i < line.text.size(); ++i) {
        const char c = line.text[i];
        if (c == '[' || c == '{') ++depth;
        if ((c == ']' || c == '}') && depth > 0) --depth;
        if (depth > kDeepest) throw unreadable(file_, line.number, line.column[i], "this is nested too deep for a topology.");
        const bool first = i == 0 || line.text[i - 1] == ' ' || line.text[i - 1] == '[' || line.text[i - 1] == '{' || line.text[i - 1] == ',';
        if (c == '#' && first) break;
        if ((c == '&' || c == '*') && first) throw unreadable(file_, line.number, line.column[i], "anchors and aliases have no place in a topology.", "Write names out.");
      }
    }
  }

  void check_keys(const YAML::Node& map, const std::string& what, const std::vector<std::string>& known) const {
    if (!map.IsMap()) throw refuse(map, what + " must be a map of " + join(known, ", ") + ".");
    for (const auto& pair : map) {
      if (!pair.first.IsScalar()) throw refuse(pair.first, "a key must be a word.");
      const std::string& key = pair.first.Scalar();
      if (std::find(known.begin(), known.end(), key) == known.end()) throw refuse(pair.first, printable(key.substr(0, 60)) + " is no key of " + what + ".", suggest(key.substr(0, 60), known));
    }
  }

  [[nodiscard]] std::string word(const YAML::Node& map, const char* key, const std::string& what) const {
    const YAML::Node value = map[key];
    if (!value || !value.IsScalar() || value.Scalar().empty()) throw refuse(value ? value : map, what + " needs its name (" + key + ": NAME).");
    if (value.Scalar().size() > 255) throw refuse(value, "the name has more than 255 bytes.");
    return value.Scalar();
  }

  [[nodiscard]] bool flag(const YAML::Node& map, const char* key) const {
    const YAML::Node value = map[key];
    if (!value) return false;
    try {
      return value.as<bool>();
    } catch (const YAML::Exception&) {
      throw refuse(value, std::string(key) + " must be true or false.");
    }
  }

  std::string read_head(const YAML::Node& one, std::vector<bool>& is_default) const {
    check_keys(one, "a topology", {"topology", "cluster_default", "tree", "block", "flat", "ring", "torus3d"});
    is_default.push_back(flag(one, "cluster_default"));
    return word(one, "topology", "a topology");
  }

  std::string read_topology(const YAML::Node& one, SlurmTopology& topology) {
    std::vector<std::string> kinds;
    for (const char* kind : {"tree", "block", "ring", "torus3d"}) {
      if (one[kind]) kinds.emplace_back(kind);
    }
    if (flag(one, "flat")) kinds.emplace_back("flat");
    if (kinds.size() != 1) throw refuse(one, kinds.empty() ? "the topology has no kind." : "the topology has several kinds: " + join(kinds, ", ") + ".", "Give one of tree, block, ring, flat.");
    const std::string& kind = kinds.front();
    if (kind == "flat") {
      note(one, "a flat topology says nothing of switches.");
      return kind;
    }
    const YAML::Node inside = one[kind];
    if (kind == "torus3d") {
      note(inside, "a torus isn't read.");
      reading_.partial = true;
      return kind;
    }
    if (kind == "tree") {
      check_keys(inside, "a tree", {"switches"});
      read_groups(inside["switches"], inside, "switch", {"switch", "children", "nodes"}, topology.switches);
    } else if (kind == "ring") {
      check_keys(inside, "a ring topology", {"rings"});
      read_groups(inside["rings"], inside, "ring", {"ring", "nodes"}, topology.rings);
    } else {
      check_keys(inside, "a block topology", {"block_sizes", "blocks"});
      read_groups(inside["blocks"], inside, "block", {"block", "nodes"}, topology.blocks);
      read_sizes(inside["block_sizes"], topology);
    }
    return kind;
  }

  void read_groups(const YAML::Node& list, const YAML::Node& parent, const char* what, const std::vector<std::string>& keys, std::vector<SlurmGroup>& groups) {
    if (!list || !list.IsSequence()) throw refuse(list ? list : parent, std::string("a list of each ") + what + " is missing.");
    if (list.size() > kMostSlurmNodes) throw refuse(list, "the list is longer than " + std::to_string(kMostSlurmNodes) + ".");
    for (const YAML::Node& one : list) {
      check_keys(one, std::string("a ") + what, keys);
      SlurmGroup group;
      group.name = word(one, what, std::string("a ") + what);
      group.line = one[what].Mark().line + 1;
      group.column = one[what].Mark().column + 1;
      if (one["nodes"]) group.nodes = names(one["nodes"]);
      if (const YAML::Node children = one["children"]) {
        group.switches = names(children);
        group.below_line = children.Mark().line + 1;
        group.below_column = children.Mark().column + 1;
      }
      if (!group.nodes.empty() && !group.switches.empty()) {
        note(one, "the switch " + group.name + " has nodes and children; as in Slurm its children are ignored.");
        group.switches.clear();
      }
      groups.push_back(std::move(group));
    }
  }

  std::vector<std::string> names(const YAML::Node& value) {
    std::vector<std::string> names;
    if (value.IsNull()) return names;
    if (!value.IsScalar()) throw refuse(value, "a list of names is text, like n[01-16].");
    const auto fault = expand_node_list(value.Scalar(), names, kMostSlurmNodes - std::min(kMostSlurmNodes, named_));
    if (fault) {
      const int quote = value.Mark().pos >= 0 && static_cast<std::size_t>(value.Mark().pos) < text_.size() && (text_[static_cast<std::size_t>(value.Mark().pos)] == '"' || text_[static_cast<std::size_t>(value.Mark().pos)] == '\'') ? 1 : 0;
      throw unreadable(file_, value.Mark().line + 1, value.Mark().column + 1 + quote + static_cast<int>(fault->offset), fault->what + ".", "A list looks like n[001-003,7],login.");
    }
    named_ += names.size();
    return names;
  }

  void read_sizes(const YAML::Node& list, SlurmTopology& topology) const {
    if (!list) return;
    if (!list.IsSequence() || list.size() > 32) throw refuse(list, "block_sizes must be a list of numbers.");
    topology.block_sizes_line = list.Mark().line + 1;
    for (const YAML::Node& size : list) {
      const auto number = size.IsScalar() ? parse_integer(size.Scalar()) : std::nullopt;
      if (!number || *number < 1 || *number > static_cast<long long>(kMostSlurmNodes)) throw refuse(size, "this is no block size.", "Write numbers of nodes.");
      topology.block_sizes.push_back(static_cast<int>(*number));
    }
  }

  std::string_view text_, file_;
  Reading reading_;
  SlurmTopology chosen_;
  std::size_t named_ = 0;
};

}  // namespace

bool looks_like_slurm_yaml(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) {
    std::string_view text = trimmed(line.text);
    if (text.substr(0, 1) == "[") text = trimmed(text.substr(1));
    if (text.substr(0, 1) == "-" || text.substr(0, 1) == "{") text = trimmed(text.substr(1));
    if (text.substr(0, 1) == "{") text = trimmed(text.substr(1));
    return text.substr(0, 9) == "topology:" && trimmed(line.text).front() != 't';
  });
}

Reading read_slurm_yaml(std::string_view text, std::string_view file) {
  try {
    return Reader(text, file).read();
  } catch (const YAML::Exception& error) {
    throw unreadable(file, std::max(0, error.mark.line + 1), std::max(0, error.mark.column + 1), "this is no topology: " + printable(error.msg) + ".");
  }
}

}  // namespace wirewise
