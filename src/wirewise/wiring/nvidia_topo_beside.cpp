#include "wirewise/wiring/nvidia_topo_beside.h"

#include <algorithm>

#include "wirewise/base/text.h"

namespace wirewise {
namespace {

constexpr std::string_view kMakes[] = {"NVIDIA ", "Tesla ", "Quadro ", "GeForce "};
constexpr int kMostTogether = 64;

/// Whether a value is a GPU's name: "NVIDIA H100 80GB HBM3 (UUID: …)", "Tesla V100-SXM2-32GB".
bool names_model(std::string_view value) {
  if (value.find(" (UUID") != std::string_view::npos) return true;
  return std::any_of(std::begin(kMakes), std::end(kMakes), [&](std::string_view make) { return value.starts_with(make); });
}

/// How many GPUs "GPU 0" or "GPU 0,1,2,3" are, which must be the next ones; 0: none of those.
int listed_next(std::string_view key, std::size_t next) {
  if (!key.starts_with("GPU ")) return 0;
  int count = 0;
  for (const std::string& number : split(key.substr(4), ',')) {
    if (parse_integer(number) != static_cast<long long>(next) + count || ++count > kMostTogether) return 0;
  }
  return count;
}

}  // namespace

int pcie_only(const std::vector<TextLine>& lines) {
  for (const TextLine& line : lines) {
    const auto words = words_of(line);
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      const std::string& option = words[i + 1].text;
      if (words[i].text == "topo" && (option.substr(0, option.find('`')) == "-mp" || option == "--matrix_pci")) return line.number;
    }
  }
  return 0;
}

std::vector<Device> models_beside(const std::vector<TextLine>& lines) {
  std::vector<Device> models;
  bool memory = false;
  for (const TextLine& line : lines) {
    const std::string_view text = trimmed(line.text);
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) {
      memory = text == "FB Memory Usage";
      continue;
    }
    const std::string_view key = trimmed(text.substr(0, colon)), value = trimmed(text.substr(colon + 1));
    const std::size_t end = value.find(" (UUID");
    if (const int listed = names_model(value) ? listed_next(key, models.size()) : 0; listed > 0 || key == "Product Name") {
      for (int i = 0; i < std::max(listed, 1); ++i) {
        models.emplace_back();
        models.back().model = std::string(value.substr(0, end));
      }
    } else if (memory && key == "Total" && !models.empty()) {
      models.back().memory = static_cast<Bytes>(parse_integer(value.substr(0, value.find(' '))).value_or(0)) * kMiB;
      memory = false;
    }
  }
  return models;
}

std::optional<Reading> report_beside(std::string_view text, std::string_view file, const std::vector<TextLine>& lines) {
  if (!looks_like_nvidia_report(lines)) return std::nullopt;
  try {
    return read_nvidia_report(text, file);
  } catch (const Error&) {
    return std::nullopt;  // names are taken none the less
  }
}

void add_report(const Reading& report, Reading& reading) {
  const std::vector<int> from = devices_of(report.wiring, DeviceKind::kGpu), to = devices_of(reading.wiring, DeviceKind::kGpu);
  for (std::size_t i = 0; i < from.size() && i < to.size(); ++i) {
    const auto stated = std::find_if(report.wiring.links.begin(), report.wiring.links.end(), [&](const Link& link) { return link.from == from[i] && link.kind == LinkKind::kPcie; });
    if (stated == report.wiring.links.end() || stated->provenance == Provenance::kAssumed) continue;
    for (Link& link : reading.wiring.links) {
      if ((link.from != to[i] && link.to != to[i]) || link.kind != LinkKind::kPcie) continue;
      const int source = link.from, end = link.to;
      link = *stated;
      link.from = source;
      link.to = end;
    }
  }
  reading.facts.insert(reading.facts.end(), report.facts.begin(), report.facts.end());
  reading.notes.insert(reading.notes.end(), report.notes.begin(), report.notes.end());
  reading.partial = reading.partial || report.partial;
}

}  // namespace wirewise
