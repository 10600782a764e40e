// Slurm's topology.conf in all its kinds (tree, block, ring), and what `scontrol show topology` prints of it.
#include <algorithm>
#include <array>
#include <cctype>

#include "wirewise/base/nearest.h"
#include "wirewise/base/node_list.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/slurm_topology.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostSizes = 32;

bool blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

struct Place {
  int line = 0, column = 0;
};

/// A line without its comment, with those that a backslash at its end continues it by.
struct Statement {
  std::string text;
  std::vector<Place> place;  // of each byte
  bool cut = false;          // the file stops within it

  [[nodiscard]] Place at(std::size_t offset) const { return place[std::min(offset, place.size() - 1)]; }
};

struct Pair {
  std::string key;  // lower case
  std::string value;
  std::size_t key_at = 0, value_at = 0;
};

std::vector<Statement> statements_of(std::string_view text) {
  std::vector<Statement> statements;
  bool continued = false;
  for (const TextLine& line : text_lines(text)) {
    if (!continued) statements.emplace_back();
    Statement& statement = statements.back();
    std::size_t end = 0;
    while (end < line.text.size() && !(line.text[end] == '#' && (end == 0 || line.text[end - 1] != '\\'))) ++end;
    const bool comment = end < line.text.size();
    while (end > 0 && blank(line.text[end - 1])) --end;
    continued = !comment && end > 0 && line.text[end - 1] == '\\';
    if (continued) --end;
    for (std::size_t i = 0; i < end; ++i) {
      statement.text += line.text[i];
      statement.place.push_back({line.number, line.column[i]});
    }
    statement.cut = !line.ended;
  }
  return statements;
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : file_(file), statements_(statements_of(text)) { reading_.format = Format::kSlurmConf; }

  Reading read() {
    for (const Statement& statement : statements_) {
      const auto pairs = pairs_of(statement);
      if (!pairs.empty()) read_statement(statement, pairs);
    }
    if (topology_.switches.empty() && topology_.blocks.empty() && topology_.rings.empty()) {
      throw unreadable(file_, 0, 0, "the file describes no switch, block or ring.", "A line of topology.conf is SwitchName=leaf1 Nodes=node[01-16].");
    }
    if (!shown_) check_children();
    add_slurm_topology(topology_, file_, reading_);
    return std::move(reading_);
  }

 private:
  void note(Place place, std::string text, bool partial = false) {
    reading_.notes.push_back({place.line, place.column, std::move(text)});
    reading_.partial = reading_.partial || partial;
  }

  [[nodiscard]] Error refuse(const Statement& statement, std::size_t at, const std::string& what, const std::string& remedy = {}) const {
    const Place place = statement.at(at);
    return unreadable(file_, place.line, place.column, what, remedy);
  }

  /// Keys and values as Slurm's own parser cuts them: blanks may stand round the =, and values may be quoted.
  std::vector<Pair> pairs_of(const Statement& statement) {
    const std::string& text = statement.text;
    std::vector<Pair> pairs;
    std::size_t at = 0;
    const auto skip = [&] {
      while (at < text.size() && blank(text[at])) ++at;
    };
    for (skip(); at < text.size(); skip()) {
      Pair pair;
      pair.key_at = at;
      while (at < text.size() && text[at] != '=' && !blank(text[at])) ++at;
      const std::string key = text.substr(pair.key_at, at - pair.key_at);
      pair.key = lower_case(key);
      if (pairs.empty() && pair.key == "include") {
        note(statement.at(pair.key_at), "the file includes another one, which isn't read.", true);
        return {};
      }
      skip();
      if (at == text.size() || text[at] != '=' || key.empty()) {
        if (statement.cut && at == text.size()) {
          note(statement.at(pair.key_at), "the last line is cut off.", true);
          return pairs;
        }
        throw refuse(statement, pair.key_at, printable(key.substr(0, 60)) + (key.empty() ? "a name is missing before the =." : " has no value."), "Write NAME=VALUE.");
      }
      ++at;
      skip();
      const bool quoted = at < text.size() && text[at] == '"';
      pair.value_at = quoted ? at + 1 : at;
      if (quoted) {
        at = text.find('"', at + 1);
        if (at == std::string::npos) throw refuse(statement, pair.value_at - 1, "the quote is never closed.");
      } else {
        while (at < text.size() && !blank(text[at])) ++at;
      }
      pair.value = text.substr(pair.value_at, at - pair.value_at);
      if (quoted) ++at;
      if (pair.value.empty()) throw refuse(statement, pair.key_at, printable(key) + " has no value.", "Give one, or leave the key out.");
      pairs.push_back(std::move(pair));
    }
    return pairs;
  }

  std::vector<std::string> names(const Statement& statement, const Pair& pair) {
    std::vector<std::string> names;
    if (lower_case(pair.value) == "(null)") return names;  // as scontrol prints none
    const auto fault = expand_node_list(pair.value, names, kMostSlurmNodes - std::min(kMostSlurmNodes, named_));
    if (fault) {
      const Place place = statement.at(pair.value_at + fault->offset);
      const bool cut = statement.cut && pair.value_at + pair.value.size() == statement.text.size();
      if (!cut || fault->what.find("more than") != std::string::npos) throw unreadable(file_, place.line, place.column, fault->what + ".", "A list looks like n[001-003,7],login.");
      note(place, "the last line is cut off within a list: " + fault->what + ".", true);
    }
    named_ += names.size();
    return names;
  }

  void read_statement(const Statement& statement, const std::vector<Pair>& pairs) {
    static const std::vector<std::string> known{"switchname", "switches", "nodes", "linkspeed", "level", "blockname", "blocksizes", "blocksize", "blockindex", "aggregatedblock", "ringname", "allowemptyswitch"};
    const Pair& first = pairs.front();
    for (const Pair& pair : pairs) {
      if (std::find(known.begin(), known.end(), pair.key) == known.end()) {
        throw refuse(statement, pair.key_at, printable(statement.text.substr(pair.key_at, pair.key.size()).substr(0, 60)) + " is no key of topology.conf.", suggest(pair.key.substr(0, 60), kSpelled));
      }
      if (std::count_if(pairs.begin(), pairs.end(), [&](const Pair& other) { return other.key == pair.key; }) > 1) {
        throw refuse(statement, pair.key_at, printable(pair.key) + " stands in the line twice.", "Slurm takes the last: give one.");
      }
    }
    if (first.key == "switchname") return read_group(statement, pairs, topology_.switches, {"switches", "nodes", "linkspeed", "level"});
    if (first.key == "blockname") return read_group(statement, pairs, topology_.blocks, {"nodes", "blockindex", "blocksize"});
    if (first.key == "ringname") return read_group(statement, pairs, topology_.rings, {"nodes"});
    if (first.key == "aggregatedblock") {
      reading_.facts.push_back({first.value, "aggregated block", pairs.back().value, statement.at(0).line});
      return;
    }
    if (first.key == "allowemptyswitch" && pairs.size() == 1) return reading_.facts.push_back({"tree", "AllowEmptySwitch", first.value, statement.at(0).line});
    if (first.key == "blocksizes" && pairs.size() == 1) return read_sizes(statement, first);
    throw refuse(statement, first.key_at, "a line can't start with " + printable(statement.text.substr(first.key_at, first.key.size())) + ".", "Lines start with SwitchName, BlockName, RingName or BlockSizes.");
  }

  void read_group(const Statement& statement, const std::vector<Pair>& pairs, std::vector<SlurmGroup>& groups, const std::vector<std::string>& allowed) {
    SlurmGroup group;
    group.name = pairs.front().value;
    const Place place = statement.at(pairs.front().value_at);
    group.line = place.line;
    group.column = place.column;
    if (group.name.size() > 64) throw refuse(statement, pairs.front().value_at, "the name has more than 64 characters.");
    for (auto pair = pairs.begin() + 1; pair != pairs.end(); ++pair) {
      if (std::find(allowed.begin(), allowed.end(), pair->key) == allowed.end()) {
        throw refuse(statement, pair->key_at, printable(pair->key) + " doesn't belong to a line of " + printable(pairs.front().key) + ".");
      }
      if (pair->key == "nodes") group.nodes = names(statement, *pair);
      if (pair->key == "switches") {
        group.switches = names(statement, *pair);
        group.below_line = statement.at(pair->value_at).line;
        group.below_column = statement.at(pair->value_at).column;
      }
      if (pair->key == "linkspeed") {
        reading_.facts.push_back({group.name, "link speed", pair->value, statement.at(pair->value_at).line});
        if (!parse_integer(pair->value)) note(statement.at(pair->value_at), "LinkSpeed=" + pair->value + " is no whole number: Slurm would refuse it. It has no unit, and Slurm doesn't use it.");
      }
      if (pair->key == "level") shown_ = true;
    }
    if (groups.size() >= kMostSlurmNodes) throw refuse(statement, 0, "there are more than " + std::to_string(kMostSlurmNodes) + " lines.");
    if (shown_ && !group.switches.empty()) group.nodes.clear();  // scontrol prints all nodes below
    groups.push_back(std::move(group));
  }

  void read_sizes(const Statement& statement, const Pair& pair) {
    std::size_t at = pair.value_at;
    topology_.block_sizes.clear();
    topology_.block_sizes_line = statement.at(at).line;
    for (const std::string& size : split(pair.value, ',')) {
      const auto number = parse_integer(size);
      if (!number || *number < 1 || *number > static_cast<long long>(kMostSlurmNodes) || topology_.block_sizes.size() >= kMostSizes) throw refuse(statement, at, printable(size.substr(0, 40)) + " is no block size.", "Write numbers of nodes: BlockSizes=8,16.");
      topology_.block_sizes.push_back(static_cast<int>(*number));
      at += size.size() + 1;
    }
  }

  void check_children() const {
    for (const SlurmGroup& group : topology_.switches) {
      if (group.nodes.empty() || group.switches.empty()) continue;
      throw unreadable(file_, group.line, group.column, "the switch " + printable(group.name) + " has both nodes and switches below it.", "Slurm refuses that: put the nodes below a leaf switch.");
    }
  }

  inline static const std::vector<std::string> kSpelled{"SwitchName", "Switches", "Nodes", "LinkSpeed", "BlockName", "BlockSizes", "RingName"};

  std::string_view file_;
  std::vector<Statement> statements_;
  SlurmTopology topology_;
  Reading reading_;
  std::size_t named_ = 0;  // names in all lists so far
  bool shown_ = false;     // scontrol printed it: lines have a level
};

}  // namespace

bool looks_like_slurm_conf(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) {
    const std::string start = lower_case(trimmed(line.text).substr(0, 40));
    for (std::string_view key : {"switchname", "blockname", "ringname", "blocksizes"}) {
      if (start.compare(0, key.size(), key) != 0) continue;
      const std::size_t next = start.find_first_not_of(" \t", key.size());
      if (next != std::string::npos && start[next] == '=') return true;
    }
    return false;
  });
}

Reading read_slurm_conf(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

}  // namespace wirewise
