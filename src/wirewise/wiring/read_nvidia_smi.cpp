// What nvidia-smi lists of one host's GPUs: --query-gpu=… --format=csv, -L with MIG devices, and nvlink --status.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>

#include "wirewise/base/text.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/nccl_words.h"
#include "wirewise/wiring/listed_gpus.h"
#include "wirewise/wiring/pasted.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

struct Column {
  std::string name, unit;  // "memory.total", "MiB"
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (const std::string& cell : split(line, ',')) cells.emplace_back(trimmed(cell));
  return cells;
}

bool is_query_head(const std::string& line) {
  const auto cells = cells_of(line);
  if (cells.size() < 2 || line.find("--query-") != std::string::npos) return false;  // the latter: the command above it
  static const std::vector<std::string> known{"index", "name", "gpu_name", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "memory.total [MiB]", "memory.used [MiB]", "driver_version", "timestamp", "count"};
  return std::any_of(cells.begin(), cells.end(), [&](const std::string& cell) { return std::find(known.begin(), known.end(), cell) != known.end(); }) &&
         std::all_of(cells.begin(), cells.end(), [](const std::string& cell) { return !cell.empty() && std::islower(static_cast<unsigned char>(cell.front())) != 0; });
}

/// Drivers before 455 leave the maker out.
bool is_model(std::string_view cell) {
  constexpr std::string_view kStarts[] = {"NVIDIA ", "Tesla ", "GeForce ", "Quadro ", "TITAN ", "GRID "};
  return std::any_of(std::begin(kStarts), std::end(kStarts), [&](std::string_view start) { return cell.starts_with(start); });
}

/// "0, NVIDIA H100 80GB HBM3, 81559 MiB": a row of a query without its head.
bool is_bare_row(const std::string& line) {
  const auto cells = cells_of(line);
  if (cells.size() < 2 || cells.size() > 100) return false;
  return std::any_of(cells.begin(), cells.end(), [](const std::string& cell) { return is_model(cell) || cell.starts_with("GPU-"); }) &&
         cells[0].substr(0, 4) != "GPU ";
}

class QueryReader {
 public:
  QueryReader(std::string_view text, std::string_view file) : file_(file), lines_(text_lines(text)) { reading_.format = Format::kNvidiaQuery; }

  Reading read() {
    add_listed_host(reading_.wiring);
    for (const TextLine& line : lines_) {
      if (trimmed(line.text).empty()) {
        gap_ = true;
        continue;
      }
      if (is_query_head(line.text)) {
        if (!columns_.empty()) throw unreadable(file_, line.number, 1, "a second head.", "Give one query's output.");
        for (const std::string& cell : cells_of(line.text)) columns_.push_back(column_of(cell));
      } else if (!columns_.empty() && behind(line)) {
        if (!over_) reading_.notes.push_back({line.number, 0, "what stands behind the table was left out."});
        over_ = true;
      } else if (!columns_.empty()) {
        read_row(line);
        gap_ = false;
      } else if (is_bare_row(line.text)) {
        read_bare(line);
      }
    }
    if (reading_.wiring.devices.size() == 1) throw unreadable(file_, 0, 0, "there is no GPU in the query.", "Give the output of nvidia-smi --query-gpu=index,name,memory.total,pci.bus_id --format=csv.");
    if (models_.size() > 1) reading_.notes.push_back({0, 0, "the GPUs differ: " + join(std::vector<std::string>(models_.begin(), models_.end()), ", ") + "."});
    return std::move(reading_);
  }

 private:
  /// Text behind the rows: another command's output, a closing fence.
  [[nodiscard]] bool behind(const TextLine& line) const {
    const std::size_t cells = cells_of(line.text).size();
    return over_ || (!indices_.empty() && cells != columns_.size() && line.ended && (gap_ || cells == 1));
  }

  static Column column_of(const std::string& cell) {
    const std::size_t open = cell.find(" [");
    if (open == std::string::npos || cell.back() != ']') return {cell, ""};
    return {cell.substr(0, open), cell.substr(open + 2, cell.size() - open - 3)};
  }

  int free_index(const TextLine& line, std::optional<long long> wanted) {
    const long long index = wanted.value_or(static_cast<long long>(reading_.wiring.devices.size()) - 1);
    if (index < 0 || index > 100000) throw unreadable(file_, line.number, 1, std::to_string(index) + " is no GPU's index.");
    if (!indices_.insert(static_cast<int>(index)).second) throw unreadable(file_, line.number, 1, "GPU " + std::to_string(index) + " stands there twice.");
    if (indices_.size() > kMostListedGpus) throw unreadable(file_, line.number, 1, "there are more than " + std::to_string(kMostListedGpus) + " GPUs.");
    return static_cast<int>(index);
  }

  void read_row(const TextLine& line) {
    const auto cells = cells_of(line.text);
    if (cells.size() != columns_.size()) {
      if (!line.ended) {
        reading_.notes.push_back({line.number, 0, "the last row is cut off."});
        reading_.partial = true;
        return;
      }
      throw unreadable(file_, line.number, 1, fmt::format("the row has {} cells, the head {}.", cells.size(), columns_.size()));
    }
    std::optional<long long> wanted;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (columns_[i].name == "index" && !not_stated(cells[i])) {
        wanted = parse_integer(cells[i]);
        if (!wanted) throw unreadable(file_, line.number, 1, printable(cells[i].substr(0, 40)) + " is no GPU's index.");
      }
    }
    const int at = add_listed_gpu(reading_.wiring, free_index(line, wanted), "");
    pcie_ = {};
    idle_.reset();
    working_ = false;
    for (std::size_t i = 0; i < cells.size(); ++i) read_cell(line, columns_[i], cells[i], at);
    if (pcie_.generation + pcie_.most_generation + pcie_.lanes + pcie_.most_lanes > 0) set_listed_pcie(reading_, at, pcie_, idle_, line.number);
  }

  void read_cell(const TextLine& line, const Column& column, const std::string& cell, int at) {
    Device& gpu = reading_.wiring.devices[static_cast<std::size_t>(at)];
    const bool has = !not_stated(cell);
    if (column.name == "index") return;
    if ((column.name == "name" || column.name == "gpu_name") && has) {
      gpu.model = cell;
      models_.insert(cell);
      return;
    }
    if ((column.name == "pci.bus_id" || column.name == "gpu_bus_id") && has) gpu.pci = listed_pci(cell);
    if (column.name == "memory.total" && has) gpu.memory = memory(line, column, cell);
    if (has) read_link(column.name, cell);
    const bool bare = cell.find_first_not_of("0123456789.") == std::string::npos;
    reading_.facts.push_back({gpu.name, column.name, has && bare && !column.unit.empty() ? cell + " " + column.unit : cell, line.number});
  }

  void read_link(const std::string& column, const std::string& cell) {
    const auto number = parse_integer(cell);
    const int value = number && *number > 0 && *number <= 64 ? static_cast<int>(*number) : 0;
    if (column == "pcie.link.gen.current" || column == "pcie.link.gen.gpucurrent") pcie_.generation = value;
    if (column == "pcie.link.gen.max") pcie_.most_generation = value;
    if (column == "pcie.link.width.current") pcie_.lanes = value;
    if (column == "pcie.link.width.max") pcie_.most_lanes = value;
    if (column == "pstate" && !working_) idle_ = rests(cell);
    if (column == "utilization.gpu" && at_work(cell)) {
      working_ = true;
      idle_ = false;
    }
  }

  Bytes memory(const TextLine& line, const Column& column, const std::string& cell) const {
    const std::size_t blank = cell.find(' ');
    const auto number = parse_integer(cell.substr(0, blank));
    const std::string unit = blank == std::string::npos ? (column.unit.empty() ? "MiB" : column.unit) : cell.substr(blank + 1);
    if (!number || *number < 0 || *number > 1LL << 32 || unit != "MiB") throw unreadable(file_, line.number, 1, printable(cell.substr(0, 40)) + " is no size of memory.", "nvidia-smi writes 81559 MiB.");
    return static_cast<Bytes>(*number) * kMiB;
  }

  /// Without a head: what tells itself.
  void read_bare(const TextLine& line) {
    const auto cells = cells_of(line.text);
    const int at = add_listed_gpu(reading_.wiring, free_index(line, parse_integer(cells[0])), "");
    Device& gpu = reading_.wiring.devices[static_cast<std::size_t>(at)];
    for (const std::string& cell : cells) {
      if (is_model(cell)) {
        gpu.model = cell;
        models_.insert(cell);
      } else if (cell.substr(0, 4) == "GPU-") {
        reading_.facts.push_back({gpu.name, "uuid", cell, line.number});
      } else if (cell.size() == 16 && cell.find(':') == 8) {
        gpu.pci = listed_pci(cell);
      } else if (cell != cells[0] || !parse_integer(cell)) {
        reading_.facts.push_back({gpu.name, "not named by a head", cell, line.number});
      }
    }
    if (indices_.size() == 1) reading_.notes.push_back({line.number, 0, "the query has no head: figures aren't known by name."});
  }

  std::string_view file_;
  std::vector<TextLine> lines_;
  Reading reading_;
  std::vector<Column> columns_;
  std::set<int> indices_;
  PcieSeen pcie_;
  bool working_ = false;
  std::optional<bool> idle_;
  bool gap_ = false, over_ = false;  // a blank line behind the last row; the table has ended
  std::set<std::string> models_;
};

struct GpuLine {
  int index = 0;
  std::string model, uuid;
};

/// "GPU 0: NVIDIA H200 NVL (UUID: GPU-…)".
std::optional<GpuLine> gpu_line(std::string_view line) {
  line = trimmed(line);
  if (line.substr(0, 4) != "GPU ") return std::nullopt;
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto index = parse_integer(line.substr(4, colon - 4));
  if (!index || *index < 0 || *index > 100000) return std::nullopt;
  GpuLine gpu;
  gpu.index = static_cast<int>(*index);
  const std::string_view rest = trimmed(line.substr(colon + 1));
  const std::size_t uuid = rest.find("(UUID:");
  gpu.model = trimmed(rest.substr(0, uuid));
  if (uuid != std::string_view::npos) gpu.uuid = trimmed(rest.substr(uuid + 6, rest.find(')', uuid) == std::string_view::npos ? std::string_view::npos : rest.find(')', uuid) - uuid - 6));
  return gpu;
}

/// Both lists: GPUs in lines of their own, MIG devices or NVLinks below.
class ListReader {
 public:
  ListReader(std::string_view text, std::string_view file, Format format) : file_(file), lines_(text_lines(text)) { reading_.format = format; }

  Reading read() {
    add_listed_host(reading_.wiring);
    for (const TextLine& line : lines_) {
      if (const auto gpu = gpu_line(line.text)) add(line, *gpu);
      else if (at_ != -1) read_below(line);
    }
    if (at_ == -1) throw unreadable(file_, 0, 0, "there is no GPU (GPU 0: …).");
    if (reading_.format == Format::kNvlinkStatus) add_nvlinks();
    return std::move(reading_);
  }

 private:
  void add(const TextLine& line, const GpuLine& gpu) {
    if (const auto known = seen_.find(gpu.index); known != seen_.end()) {  // another of its lists: nvlink -s, then -c or -R
      const auto same = [&](const Fact& fact) { return fact.name == "uuid" && fact.value == gpu.uuid && fact.subject == reading_.wiring.devices[static_cast<std::size_t>(known->second)].name; };
      if (gpu.uuid.empty() || std::none_of(reading_.facts.begin(), reading_.facts.end(), same)) {
        throw unreadable(file_, line.number, 1, "GPU " + std::to_string(gpu.index) + " stands there twice, and isn't the same.", "Give the output of one host.");
      }
      at_ = known->second;
      return;
    }
    if (seen_.size() >= kMostListedGpus) throw unreadable(file_, line.number, 1, "there are more than " + std::to_string(kMostListedGpus) + " GPUs.");
    at_ = add_listed_gpu(reading_.wiring, gpu.index, gpu.model);
    const std::string& name = reading_.wiring.devices[static_cast<std::size_t>(at_)].name;
    reading_.facts.push_back({name, "uuid", gpu.uuid, line.number});
    seen_[gpu.index] = at_;
    links_[at_];
  }

  void read_below(const TextLine& line) {
    const std::string& name = reading_.wiring.devices[static_cast<std::size_t>(at_)].name;
    const std::string_view text = trimmed(line.text);
    if (text.substr(0, 4) == "MIG ") {
      const auto words = words_of(line);
      const std::size_t uuid = text.find("(UUID:");
      std::string value = words[1].text;
      if (uuid != std::string_view::npos) value += " " + std::string(trimmed(text.substr(uuid + 6, text.find(')', uuid) == std::string_view::npos ? std::string_view::npos : text.find(')', uuid) - uuid - 6)));
      reading_.facts.push_back({name, "MIG device", value, line.number});
      if (sliced_.insert(at_).second) reading_.notes.push_back({line.number, 0, name + " is divided by MIG: a process gets a slice's memory and units, not the card's."});
      return;
    }
    if (is_gap(line.text)) {
      gaps_.emplace(at_, line.number);
      return;
    }
    if (text.substr(0, 5) != "Link ") return;
    const std::size_t colon = text.find(':');
    if (const std::size_t comma = text.find(','); comma < colon && parse_integer(text.substr(5, comma - 5))) {  // nvlink --capabilities: "Link 0, P2P is supported: true"
      reading_.facts.push_back({name, "NVLink " + std::string(text.substr(5, comma - 5)) + std::string(text.substr(comma + 1, colon - comma - 1)), std::string(trimmed(text.substr(colon + 1))), line.number});
      return;
    }
    const auto number = parse_integer(text.substr(5, colon == std::string_view::npos ? 0 : colon - 5));
    if (!number || *number < 0 || *number > 1000) throw unreadable(file_, line.number, 1, printable(text.substr(0, 40)) + " is no link.");
    const std::string value(trimmed(text.substr(colon + 1)));
    reading_.facts.push_back({name, "NVLink " + std::to_string(*number), value, line.number});
    if (value.starts_with("Remote Device ")) {  // nvlink --remotelinkinfo
      if (far_.emplace(at_, *number).second) ++remotes_[at_][value.substr(14, value.find(": ") == std::string::npos ? std::string::npos : value.find(": ") - 14)];
      return;
    }
    if (!value.empty() && value != "<inactive>" && value.find(':') != std::string::npos) return;  // nvlink --errorcounters: "Replay Errors: 0"
    const std::size_t unit = value.find(" GB/s");
    if (unit == std::string::npos || unit > 12) {
      reading_.notes.push_back({line.number, 0, name + "'s NVLink " + std::to_string(*number) + " is " + (value.empty() ? "not described" : value) + "."});
      return;
    }
    const double speed = std::strtod(value.c_str(), nullptr);
    if (!(speed > 0 && speed < 1e4)) throw unreadable(file_, line.number, 1, printable(value) + " is no speed.");
    links_[at_].try_emplace(static_cast<int>(*number), speed);
  }

  /// Links of these speeds side by side. `most`: how many the GPU with the most has.
  [[nodiscard]] Link nvlink_of(int gpu, const std::map<int, double>& speeds, std::size_t most) const {
    double sum = 0;
    for (const auto& [number, speed] : speeds) sum += speed;
    const double each = sum / static_cast<double>(speeds.size());
    const int by_model = nvlink_generation(compute_capability_of(reading_.wiring.devices[static_cast<std::size_t>(gpu)].model));
    const int generation = by_model > 0 ? by_model : each < 22 ? 1 : each > 40 ? 5 : most > 12 ? 4 : most > 6 ? 3 : 2;
    Link link = nvlink_link(generation, static_cast<int>(speeds.size()), Provenance::kDriver);
    // The driver's figure is the rate on the wire, a few percent above the standard's (26.562 where that says 25); only a slower link counts so.
    constexpr double kOnTheWire = 0.1;
    if (const double ratio = sum * 1e9 / link.spec; std::abs(ratio - 1) > kOnTheWire) {
      link.beta *= ratio;
      link.spec = sum * 1e9;
    }
    return link;
  }

  /// Which GPU a link leads to isn't said: all lead to one NVSwitch, as in machines whose GPUs have equally many.
  void add_nvlinks() {
    std::size_t most = 0;
    for (const auto& [gpu, speeds] : links_) most = std::max(most, speeds.size());
    if (most == 0) return add_remote_links();
    Device middle;
    middle.name = "nvswitch0";
    middle.kind = DeviceKind::kNvSwitch;
    middle.host = 0;
    const int nvswitch = add_device(reading_.wiring, std::move(middle));
    for (const auto& [gpu, speeds] : links_) {
      const std::string& name = reading_.wiring.devices[static_cast<std::size_t>(gpu)].name;
      if (const auto gap = gaps_.find(gpu); gap != gaps_.end() && speeds.size() < most) {
        reading_.notes.push_back({gap->second, 0, "the rest of " + name + "'s NVLinks is left out here: it is taken to have as many as the GPU with the most, " + std::to_string(most) + "."});
        const std::map<int, double>& whole = std::find_if(links_.begin(), links_.end(), [&](const auto& other) { return other.second.size() == most; })->second;
        Link link = nvlink_of(gpu, whole, most);
        link.provenance = Provenance::kAssumed;
        add_link(reading_.wiring, gpu, nvswitch, std::move(link));
        continue;
      }
      if (speeds.size() < most) reading_.notes.push_back({0, 0, name + " has " + std::to_string(speeds.size()) + " NVLinks up, others " + std::to_string(most) + ".",
                                                             "Reset the GPUs or restart the host; links that stay down want the card, its bridge or its baseboard repaired."});
      if (!speeds.empty()) add_link(reading_.wiring, gpu, nvswitch, nvlink_of(gpu, speeds, most));
    }
    reading_.notes.push_back({0, 0, "which GPU each NVLink leads to isn't said; a switch between all of them is assumed. nvidia-smi topo -m says it."});
  }

  /// Where all GPUs' links lead to the same devices, these are NVSwitches; else they are other GPUs, whose addresses the list doesn't say.
  void add_remote_links() {
    if (remotes_.empty()) return;
    const auto far_ends = [](const std::map<std::string, int>& remotes) {
      std::set<std::string> ends;
      for (const auto& [end, count] : remotes) ends.insert(end);
      return ends;
    };
    const std::set<std::string> all = far_ends(remotes_.begin()->second);
    const bool switches = remotes_.size() > 1 && std::all_of(remotes_.begin(), remotes_.end(), [&](const auto& gpu) { return far_ends(gpu.second) == all; });
    std::map<int, int> counts;
    for (const auto& [gpu, remotes] : remotes_) {
      for (const auto& [end, count] : remotes) {
        counts[gpu] += count;
        reading_.facts.push_back({reading_.wiring.devices[static_cast<std::size_t>(gpu)].name, "NVLinks to " + end, std::to_string(count), 0});
      }
    }
    if (!switches) {
      reading_.notes.push_back({0, 0, "the list doesn't say which GPUs or NVSwitches the links' far ends are, so the links are facts only. nvidia-smi topo -m says it."});
      return;
    }
    Device middle;
    middle.name = "nvswitch0";
    middle.kind = DeviceKind::kNvSwitch;
    middle.host = 0;
    const int nvswitch = add_device(reading_.wiring, std::move(middle));
    for (const auto& [gpu, count] : counts) {
      const std::string& model = reading_.wiring.devices[static_cast<std::size_t>(gpu)].model;
      const bool blackwell = model.find("B100") != std::string::npos || model.find("B200") != std::string::npos || model.find("B300") != std::string::npos;
      add_link(reading_.wiring, gpu, nvswitch, nvlink_link(blackwell ? 5 : count > 12 ? 4 : count > 6 ? 3 : 2, count, Provenance::kAssumed));
    }
    reading_.notes.push_back({0, 0, "all GPUs' links lead to the same " + std::to_string(all.size()) + " devices, which are taken for NVSwitches; the speed is assumed."});
  }

  std::string_view file_;
  std::vector<TextLine> lines_;
  Reading reading_;
  std::map<int, std::map<std::string, int>> remotes_;  // how many links lead to each address, by device
  std::map<int, std::map<int, double>> links_;  // GB/s of the links that are up, by device and link
  std::map<int, int> seen_, gaps_;  // device by index; the line from which on a device's links are left out
  std::set<std::pair<int, int>> far_;  // links whose far ends are counted
  std::set<int> sliced_;
  int at_ = -1;
};

bool any_gpu_line(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) { return gpu_line(line.text).has_value(); });
}

bool any_link_line(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) {
    const std::string_view text = trimmed(line.text);
    return text.substr(0, 5) == "Link " && text.find(':') != std::string_view::npos;
  });
}

}  // namespace

bool looks_like_nvidia_query(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) { return is_query_head(line.text) || is_bare_row(line.text); });
}
bool looks_like_nvlink_status(const std::vector<TextLine>& lines) { return any_gpu_line(lines) && any_link_line(lines); }
bool looks_like_nvidia_list(const std::vector<TextLine>& lines) { return any_gpu_line(lines) && !any_link_line(lines); }

Reading read_nvidia_query(std::string_view text, std::string_view file) { return QueryReader(text, file).read(); }
Reading read_nvidia_list(std::string_view text, std::string_view file) { return ListReader(text, file, Format::kNvidiaList).read(); }
Reading read_nvlink_status(std::string_view text, std::string_view file) { return ListReader(text, file, Format::kNvlinkStatus).read(); }

}  // namespace wirewise
