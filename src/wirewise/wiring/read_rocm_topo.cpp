// rocm-smi --showtopo and amd-smi topology: matrices of one host's GPUs under heads, each of another property (weight, hops, type of link,
// access, bandwidth), and the NUMA node of each GPU. Any choice of them (--showtopotype, -t, …) is read.
//
// Hops count what a path is made of, not cables: 1 is xGMI, 2 PCIe within a NUMA node, 3 PCIe between nodes. A weight counts 15 for each xGMI
// cable on the way, so pairs with more than that have no cable of their own.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "wirewise/base/text.h"
#include "wirewise/wiring/host_builder.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/listed_gpus.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostGpus = 256;
constexpr long long kCable = 15;  // the weight of one

enum class Property : std::uint8_t { kNone, kWeight, kHops, kType, kAccess, kBandwidth, kOther };

/// What a head's matrix is of: "=== Weight between two GPUs ===", "LINK TYPE TABLE:"; empty when the line is no head.
std::optional<Property> head_of(const std::string& line) {
  std::string name = lower_case(trimmed(line));
  name.erase(0, std::min(name.find_first_not_of("=*# "), name.size()));
  if (const std::size_t last = name.find_last_not_of("=*#: "); last != std::string::npos) name.resize(last + 1);
  std::replace(name.begin(), name.end(), '_', ' ');
  const bool table = name.ends_with(" table"), between = name.ends_with("between two gpus");
  if (!table && !between) return name == "numa nodes" ? std::optional(Property::kNone) : std::nullopt;
  const auto has = [&](std::string_view word) { return name.find(word) != std::string::npos; };
  if (has("weight")) return Property::kWeight;
  if (has("hops")) return Property::kHops;
  if (has("type")) return Property::kType;
  if (has("access")) return Property::kAccess;
  if (has("bw") || has("bandwidth")) return Property::kBandwidth;
  return table || has("link") ? std::optional(Property::kOther) : std::nullopt;
}

std::string_view name_of(Property property) {
  switch (property) {
    case Property::kWeight: return "weight";
    case Property::kHops: return "hops";
    case Property::kType: return "link type";
    case Property::kAccess: return "access";
    case Property::kBandwidth: return "bandwidth in MB/s";
    default: return "";
  }
}

bool is_column(std::string_view word) {
  if (word.starts_with("GPU")) return parse_integer(word.substr(3)).has_value();
  return std::count(word.begin(), word.end(), ':') == 2 && !listed_pci(word).empty();
}

bool is_head_line(const std::vector<Word>& words) {
  return !words.empty() && std::all_of(words.begin(), words.end(), [](const Word& word) { return is_column(word.text); });
}

/// Whether a word may stand in a matrix of this property.
bool fits(Property property, const std::string& cell) {
  if (cell == "N/A" || cell == "SELF") return true;
  if (property == Property::kWeight || property == Property::kHops) return parse_integer(cell).has_value();
  if (property == Property::kType) return cell == "0" || cell == "XGMI" || cell == "PCIE" || cell == "UNKNOWN" || cell == "XXXX";
  if (property == Property::kAccess) return cell == "True" || cell == "False" || cell == "ENABLED" || cell == "DISABLED" || cell == "0" || cell == "1";
  if (property == Property::kBandwidth) return cell.find_first_not_of("0123456789-.") == std::string::npos;
  return true;
}

struct Cell {
  std::string text;
  int line = 0;
};

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : file_(file), lines_(text_lines(text)) { reading_.format = Format::kRocmTopo; }

  Reading read() {
    for (const TextLine& line : lines_) read_line(line);
    finish_matrix();
    if (names_.empty()) throw unreadable(file_, 0, 0, "there is no matrix of GPUs.", "Give the whole of what rocm-smi --showtopo or amd-smi topology prints.");
    add_devices();
    add_facts();
    return std::move(reading_);
  }

 private:
  void note(int line, std::string text, bool partial = false) {
    reading_.notes.push_back({line, 0, std::move(text)});
    reading_.partial = reading_.partial || partial;
  }

  void read_line(const TextLine& line) {
    const auto words = words_of(line);
    if (words.empty()) return;
    if (const auto head = head_of(line.text)) {
      finish_matrix();
      property_ = *head;
      return;
    }
    if (read_numa(line) || property_ == Property::kNone) return read_model(line);
    if (is_head_line(words) && (columns_.empty() || words.size() > 1)) return read_columns(line, words);
    if (!columns_.empty() && is_column(words[0].text)) read_row(line, words);
  }

  /// "GPU[0]  : (Topology) Numa Node: 0"; early versions write "GPU 0".
  bool read_numa(const TextLine& line) {
    static constexpr std::string_view kNode = "(Topology) Numa Node:";
    const std::size_t at = line.text.find(kNode);
    if (at == std::string::npos) return line.text.find("(Topology) Numa Affinity:") != std::string::npos;
    const std::size_t digit = line.text.find_first_of("0123456789"), end = line.text.find_first_not_of("0123456789", digit);
    const long long gpu = digit < at ? parse_integer(std::string_view(line.text).substr(digit, end - digit)).value_or(-1) : -1;
    const std::string node(trimmed(std::string_view(line.text).substr(at + kNode.size())));
    const auto number = parse_integer(node);
    if (gpu < 0 || gpu >= static_cast<long long>(kMostGpus)) throw unreadable(file_, line.number, 1, "the line names no GPU.");
    if (node == "N/A" || node.empty()) return true;
    if (!number || *number < -1 || *number >= 4096) throw unreadable(file_, line.number, line.column[at], printable(node.substr(0, 40)) + " is no NUMA node.");
    const std::string name = "GPU" + std::to_string(gpu);
    index_of(name, line);
    if (*number >= 0) numa_[name] = static_cast<int>(*number);
    return true;
  }

  /// A name of the GPUs, as rocm-smi --showproductname prints beside.
  void read_model(const TextLine& line) {
    for (const char* family : {"MI100", "MI200", "MI210", "MI250", "MI300", "MI308", "MI325", "MI350", "MI355"}) {
      if (model_.empty() && line.text.find(family) != std::string::npos) model_ = family;
    }
  }

  std::size_t index_of(const std::string& name, const TextLine& line) {
    const auto [found, fresh] = index_.try_emplace(name, names_.size());
    if (fresh) names_.push_back(name);
    if (names_.size() > kMostGpus) throw unreadable(file_, line.number, 0, "there are more than " + std::to_string(kMostGpus) + " GPUs.");
    return found->second;
  }

  void read_columns(const TextLine& line, const std::vector<Word>& words) {
    if (!columns_.empty()) throw unreadable(file_, line.number, words[0].column, "a second line of columns in the matrix of " + what() + ".", "A terminal may have wrapped it: give the file that the command wrote.");
    if (property_ != Property::kOther && !read_.insert(property_).second) throw unreadable(file_, line.number, words[0].column, "a second matrix of " + what() + ".", "Give the output of one host.");
    std::set<std::string> seen;
    for (const Word& word : words) {
      if (!seen.insert(word.text).second) throw unreadable(file_, line.number, word.column, word.text + " heads two columns.");
      columns_.push_back(word.text);
      index_of(word.text, line);
    }
    line_ = line.number;
  }

  void read_row(const TextLine& line, const std::vector<Word>& words) {
    if (std::find(columns_.begin(), columns_.end(), words[0].text) == columns_.end()) throw unreadable(file_, line.number, words[0].column, "the row of " + words[0].text + " has no column.");
    if (!done_.insert(words[0].text).second) throw unreadable(file_, line.number, words[0].column, "a second row of " + words[0].text + " in the matrix of " + what() + ".", "Give the output of one host.");
    const bool last = &line == &lines_.back();
    read_as_type(words);
    if (words.size() - 1 < columns_.size()) {
      if (!last) throw unreadable(file_, line.number, words[0].column, fmt::format("the row has {} cells, the head {} columns.", words.size() - 1, columns_.size()), "Fill it in, or give what the command printed.");
      note(line.number, "the row of " + words[0].text + " is cut off.", true);
    }
    for (std::size_t i = 1; i < words.size() && i <= columns_.size(); ++i) {
      const bool cut = last && !line.ended && i + 1 == words.size();
      if (cut) break;  // a part of a number is one too
      if (!fits(property_, words[i].text)) {
        throw unreadable(file_, line.number, words[i].column, printable(words[i].text.substr(0, 40)) + " is no " + what() + ", in the row of " + words[0].text + " under " + columns_[i - 1] + ".");
      }
      if (property_ == Property::kOther || words[0].text == columns_[i - 1] || words[i].text == "N/A") continue;
      const std::size_t a = index_.at(words[0].text), b = index_.at(columns_[i - 1]);
      const auto [cell, fresh] = cells_[property_].try_emplace(std::minmax(a, b), Cell{words[i].text, line.number});
      if (!fresh && cell->second.text != words[i].text) {
        note(line.number, "the " + what() + " of " + words[0].text + " and " + columns_[i - 1] + " is " + words[i].text + " here, and " + cell->second.text + " in line " + std::to_string(cell->second.line) + ".");
      }
    }
  }

  /// A matrix whose head is cut off: what it is of, its cells say.
  void read_as_type(const std::vector<Word>& words) {
    if (property_ != Property::kOther || read_.count(Property::kType) > 0) return;
    const bool all = std::all_of(words.begin() + 1, words.end(), [](const Word& word) { return fits(Property::kType, word.text); });
    const bool any = std::any_of(words.begin() + 1, words.end(), [](const Word& word) { return word.text == "XGMI" || word.text == "PCIE"; });
    if (!all || !any) return;
    property_ = Property::kType;
    read_.insert(Property::kType);
  }

  std::string what() const { return property_ == Property::kOther ? "this table" : std::string(name_of(property_)); }

  void finish_matrix() {
    if (!columns_.empty() && done_.size() < columns_.size()) note(line_, fmt::format("the matrix of {} has {} rows for {} columns.", what(), done_.size(), columns_.size()), true);
    columns_.clear();
    done_.clear();
    property_ = Property::kNone;
  }

  [[nodiscard]] std::string cell(Property property, std::size_t a, std::size_t b) const {
    const auto matrix = cells_.find(property);
    if (matrix == cells_.end()) return {};
    const auto found = matrix->second.find(std::minmax(a, b));
    return found == matrix->second.end() ? std::string() : found->second.text;
  }
  [[nodiscard]] long long number(Property property, std::size_t a, std::size_t b) const { return parse_integer(cell(property, a, b)).value_or(-1); }

  [[nodiscard]] bool by_xgmi(std::size_t a, std::size_t b) const {
    const std::string type = cell(Property::kType, a, b);
    if (!type.empty()) return type == "XGMI";
    return cells_.count(Property::kType) == 0 && number(Property::kWeight, a, b) > 0 && number(Property::kWeight, a, b) % kCable == 0 && number(Property::kHops, a, b) <= 1;
  }

  /// How many cables lead from one to the other: what they carry together over what one does, where it is stated.
  [[nodiscard]] int cables(std::size_t a, std::size_t b) const {
    const std::string bandwidth = cell(Property::kBandwidth, a, b);
    const std::size_t dash = bandwidth.find('-');
    const auto least = parse_integer(bandwidth.substr(0, dash));
    const auto most = dash == std::string::npos ? std::nullopt : parse_integer(bandwidth.substr(dash + 1));
    return least && most && *least > 0 && *most >= *least && *most / *least <= 16 ? static_cast<int>(*most / *least) : 1;
  }

  void add_devices() {
    HostPairs pairs;
    const std::size_t size = names_.size();
    pairs.pcie.resize(size * size);
    pairs.nvlinks.resize(size * size);
    for (std::size_t i = 0; i < size; ++i) {
      Device gpu;
      gpu.kind = DeviceKind::kGpu;
      gpu.name = names_[i].starts_with("GPU") ? names_[i] : "GPU" + std::to_string(i);
      if (!names_[i].starts_with("GPU")) gpu.pci = listed_pci(names_[i]);
      if (!model_.empty()) gpu.model = "AMD Instinct " + model_;
      if (const auto numa = numa_.find(names_[i]); numa != numa_.end()) gpu.numa = numa->second;
      pairs.devices.push_back(std::move(gpu));
    }
    std::set<std::string> taken;
    for (Device& gpu : pairs.devices) {  // both kinds of names in one file: GPU0 may be there already
      while (!taken.insert(gpu.name).second) gpu.name += "'";
    }
    for (std::size_t a = 0; a < size; ++a) {
      for (std::size_t b = 0; b < size; ++b) {
        if (a == b) continue;
        const long long hops = number(Property::kHops, a, b);
        const bool known = pairs.devices[a].numa >= 0 && pairs.devices[b].numa >= 0;
        if (!known && hops >= 2 && !by_xgmi(a, b)) pairs.connection(a, b) = hops == 2 ? Connection::kNode : Connection::kSys;
      }
    }
    for (std::size_t a = 0; a < size; ++a) {
      bool near = pairs.devices[a].numa >= 0;
      for (std::size_t b = 0; b < size; ++b) near = near || (a != b && pairs.connection(a, b));
      pairs.devices[a].placed = near;
    }
    const std::vector<Device> named = pairs.devices;
    add_host(reading_.wiring, "host0", std::move(pairs));
    add_xgmi(named);
  }

  void add_xgmi(const std::vector<Device>& named) {
    std::size_t joined = 0, far = 0;
    const bool old = model_ == "MI100", middle = model_ == "MI200" || model_ == "MI210" || model_ == "MI250";
    const bool all_joined = named.size() <= 4 || (max_weight() <= kCable && !some_without_bandwidth());
    const LinkClass& of = link_class(old ? "xGMI, MI100" : middle || (model_.empty() && !all_joined) ? "xGMI, MI200" : "xGMI, MI300");
    for (std::size_t a = 0; a < named.size(); ++a) {
      for (std::size_t b = a + 1; b < named.size(); ++b) {
        if (!by_xgmi(a, b)) continue;
        if (number(Property::kWeight, a, b) > kCable || (some_without_bandwidth() && cell(Property::kBandwidth, a, b) == "0-0")) {
          ++far;
          continue;
        }
        ++joined;
        const int from = find_device(reading_.wiring, named[a].name), to = find_device(reading_.wiring, named[b].name);
        add_link(reading_.wiring, from, to, make_link(of, cables(a, b), model_.empty() ? Provenance::kAssumed : Provenance::kSpec));
      }
    }
    if (joined > 0 && model_.empty()) note(0, "which GPUs these are isn't said; their xGMI is assumed to be that of " + of.name.substr(6) + ".");
    if (far > 0) note(0, std::to_string(far) + " pairs reach each other by xGMI through other GPUs (weight over " + std::to_string(kCable) + ", or a bandwidth of 0-0): they have no link of their own.");
    if (cells_.count(Property::kType) == 0 && joined == 0) note(0, "the type of the links isn't there (rocm-smi --showtopotype, amd-smi topology -t): whether xGMI joins the GPUs isn't known.");
    if (numa_.empty()) note(0, "the NUMA nodes of the GPUs aren't there (rocm-smi --showtoponuma).");
  }

  /// Whether some pairs have a bandwidth by xGMI and others none: those have no cable of their own. Some drivers state none at all.
  [[nodiscard]] bool some_without_bandwidth() const {
    const auto matrix = cells_.find(Property::kBandwidth);
    if (matrix == cells_.end()) return false;
    bool with = false, without = false;
    for (const auto& [pair, cell] : matrix->second) {
      if (by_xgmi(pair.first, pair.second)) (cell.text == "0-0" ? without : with) = true;
    }
    return with && without;
  }

  [[nodiscard]] long long max_weight() const {
    long long most = 0;
    const auto matrix = cells_.find(Property::kWeight);
    if (matrix == cells_.end()) return 0;
    for (const auto& [pair, cell] : matrix->second) most = std::max(most, by_xgmi(pair.first, pair.second) ? parse_integer(cell.text).value_or(0) : 0);
    return most;
  }

  void add_facts() {
    const auto shown = [&](std::size_t i) { return names_[i].starts_with("GPU") ? names_[i] : "GPU" + std::to_string(i); };
    for (const auto& [property, matrix] : cells_) {
      for (const auto& [pair, cell] : matrix) {
        reading_.facts.push_back({shown(pair.first) + "-" + shown(pair.second), std::string(name_of(property)), cell.text, cell.line});
        if (property == Property::kAccess && (cell.text == "False" || cell.text == "DISABLED")) note(cell.line, shown(pair.first) + " and " + shown(pair.second) + " can't reach each other's memory.");
      }
    }
  }

  std::string_view file_;
  std::vector<TextLine> lines_;
  Reading reading_;
  Property property_ = Property::kNone;
  std::vector<std::string> columns_;  // of the matrix that is read
  std::set<std::string> done_;        // its rows
  std::set<Property> read_;           // whose matrices have begun
  int line_ = 0;
  std::vector<std::string> names_;    // in the order in which they are named first
  std::map<std::string, std::size_t> index_;
  std::map<Property, std::map<std::pair<std::size_t, std::size_t>, Cell>> cells_;  // by pair, the smaller index first
  std::map<std::string, int> numa_;
  std::string model_;
};

}  // namespace

bool looks_like_rocm_topo(const std::vector<TextLine>& lines) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].text.find("(Topology) Numa Node:") != std::string::npos) return true;
    const auto head = head_of(lines[i].text);
    if (!head || *head == Property::kNone) continue;
    for (std::size_t next = i + 1; next < lines.size() && next < i + 3; ++next) {
      if (is_head_line(words_of(lines[next]))) return true;
    }
  }
  return false;
}

Reading read_rocm_topo(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

}  // namespace wirewise
