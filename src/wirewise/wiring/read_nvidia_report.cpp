// nvidia-smi -q: all that the driver says of one host's GPUs, sections below each that are indented; with -d some of them, with -x as XML.
#include <algorithm>
#include <cctype>
#include <optional>
#include <pugixml.hpp>

#include "wirewise/base/text.h"
#include "wirewise/wiring/key_lines.h"
#include "wirewise/wiring/listed_gpus.h"
#include "wirewise/wiring/nvidia_report.h"
#include "wirewise/wiring/xml_scan.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostFields = 4000;  // of one GPU
constexpr std::size_t kMostDepth = 16;
constexpr std::string_view kRemedy = "Give the output of one host.";

/// "00000000:3B:00.0" of "GPU 00000000:3B:00.0".
std::optional<std::string> bus_id_of(std::string_view line) {
  line = trimmed(line);
  if (!line.starts_with("GPU ")) return std::nullopt;
  const std::string_view id = trimmed(line.substr(4));
  if (std::count(id.begin(), id.end(), ':') != 2 || listed_pci(id).empty()) return std::nullopt;
  return std::string(id);
}

/// "PCIe Generation" is "pcie_generation".
std::string path_name(std::string_view name) {
  std::string made = lower_case(name);
  std::replace(made.begin(), made.end(), ' ', '_');
  std::replace(made.begin(), made.end(), '/', '_');
  return made;
}

void refuse_twice(const NvidiaReport& report, const std::string& bus_id, std::string_view file, int line) {
  const auto same = std::find_if(report.gpus.begin(), report.gpus.end(), [&](const ReportGpu& gpu) { return listed_pci(gpu.bus_id) == listed_pci(bus_id); });
  if (same != report.gpus.end()) throw unreadable(file, line, 1, "GPU " + bus_id + " stands there twice; the first is line " + std::to_string(same->line) + ".", std::string(kRemedy));
  if (report.gpus.size() == kMostListedGpus) throw unreadable(file, line, 1, "there are more than " + std::to_string(kMostListedGpus) + " GPUs.");
}

class TextReader {
 public:
  TextReader(std::string_view text, std::string_view file) : file_(file), lines_(text_lines(text)) { reading_.format = Format::kNvidiaReport; }

  Reading read() {
    for (const TextLine& line : lines_) {
      if (trimmed(line.text).empty()) continue;
      if (const auto id = bus_id_of(line.text)) begin(*id, line);
      else read_line(line);
    }
    if (report_.gpus.empty()) throw unreadable(file_, 0, 0, "there is no GPU (GPU 00000000:3B:00.0).", "Give the whole of what nvidia-smi -q prints: lines picked out of it don't say of which GPU they are.");
    add_nvidia_report(report_, reading_);
    if (!lines_.back().ended && !trimmed(lines_.back().text).empty()) {
      reading_.notes.push_back({lines_.back().number, 0, "the file ends within a line."});
      reading_.partial = true;
    }
    return std::move(reading_);
  }

 private:
  void begin(const std::string& id, const TextLine& line) {
    refuse_twice(report_, id, file_, line.number);
    report_.gpus.push_back({id, line.number, {}});
    margin_ = indent_of(line);
    sections_.clear();
  }

  static std::size_t indent_of(const TextLine& line) { return line.text.find_first_not_of(" \t"); }

  void read_line(const TextLine& line) {
    const std::size_t indent = indent_of(line);
    const auto pair = key_line(line);
    if (report_.gpus.empty()) {
      if (pair && report_.fields.size() < kMostFields) report_.fields.push_back({path_name(pair->key), pair->value, line.number});
      return;
    }
    if (indent <= margin_ && report_.gpus.back().fields.size() > 0 && !pair) return;  // prose behind
    while (!sections_.empty() && sections_.back().indent >= indent) sections_.pop_back();
    if (!pair) {
      if (sections_.size() < kMostDepth) sections_.push_back({indent, path_name(trimmed(line.text))});
      return;
    }
    std::string path;
    for (const Section& section : sections_) path += section.name + "/";
    auto& fields = report_.gpus.back().fields;
    if (fields.size() < kMostFields && path.size() < 400) fields.push_back({path + path_name(pair->key), pair->value, line.number});
  }

  struct Section {
    std::size_t indent;
    std::string name;
  };
  std::string_view file_;
  std::vector<TextLine> lines_;
  NvidiaReport report_;
  std::vector<Section> sections_;  // that the line stands in
  std::size_t margin_ = 0;
  Reading reading_;
};

class XmlReader {
 public:
  XmlReader(std::string_view text, std::string_view file) : file_(file), places_(text), start_(std::min(text.find("<nvidia_smi_log"), text.size())), text_(text.substr(start_)) {
    reading_.format = Format::kNvidiaReport;
  }

  Reading read() {
    if (const std::size_t end = text_.find("</nvidia_smi_log>"); end != std::string_view::npos) text_ = text_.substr(0, end + 17);
    pugi::xml_document document;
    const pugi::xml_parse_result result = document.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
    const pugi::xml_node log = document.child("nvidia_smi_log");
    for (const pugi::xml_node child : log.children()) {
      if (child.name() == std::string_view("gpu")) begin(child);
      else if (!child.first_child().first_child() && report_.fields.size() < kMostFields) report_.fields.push_back({lower_case(child.name()), child.child_value(), line_of(child)});
    }
    if (report_.gpus.empty()) {
      const int line = result ? 0 : places_.line(start_ + static_cast<std::size_t>(std::max<std::ptrdiff_t>(result.offset, 0)));
      throw unreadable(file_, line, 0, result ? "there is no GPU (<gpu id=\"00000000:3B:00.0\">)." : "the XML can't be read: " + lower_case(result.description()) + ".", "Give the whole of what nvidia-smi -q -x prints.");
    }
    add_nvidia_report(report_, reading_);
    if (!result) {
      const std::size_t at = start_ + static_cast<std::size_t>(std::max<std::ptrdiff_t>(result.offset, 0));
      reading_.notes.push_back({places_.line(at), places_.column(at), "the XML is cut off or broken here; what stands before it was read."});
      reading_.partial = true;
    }
    return std::move(reading_);
  }

 private:
  int line_of(const pugi::xml_node& node) const { return places_.line(start_ + static_cast<std::size_t>(std::max<std::ptrdiff_t>(node.offset_debug(), 0))); }

  void begin(const pugi::xml_node& node) {
    std::string id = node.attribute("id").value();
    if (listed_pci(id).empty()) id = node.child("pci").child("pci_bus_id").child_value();
    if (listed_pci(id).empty()) throw unreadable(file_, line_of(node), 0, "a GPU has no address like id=\"00000000:3B:00.0\".");
    refuse_twice(report_, id, file_, line_of(node));
    report_.gpus.push_back({id, line_of(node), {}});
    take(node, "", 0);
  }

  void take(const pugi::xml_node& node, const std::string& path, std::size_t depth) {
    for (const pugi::xml_node child : node.children()) {
      auto& fields = report_.gpus.back().fields;
      if (child.type() != pugi::node_element || fields.size() >= kMostFields) continue;
      const std::string inner = path + lower_case(child.name());
      const pugi::xml_node first = child.first_child();
      if (first && first.type() == pugi::node_element) {
        if (depth < kMostDepth && inner.size() < 400) take(child, inner + "/", depth + 1);
      } else {
        fields.push_back({inner, std::string(trimmed(child.child_value())), line_of(child)});
      }
    }
  }

  std::string_view file_;
  TextPlaces places_;
  std::size_t start_;
  std::string_view text_;
  NvidiaReport report_;
  Reading reading_;
};

}  // namespace

bool looks_like_nvidia_report(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) {
    return line.text.find("=NVSMI LOG=") != std::string::npos || line.text.find("<nvidia_smi_log") != std::string::npos || trimmed(line.text) == "GPU Link Info" || bus_id_of(line.text);
  });
}

Reading read_nvidia_report(std::string_view text, std::string_view file) {
  return text.find("<nvidia_smi_log") != std::string_view::npos ? XmlReader(text, file).read() : TextReader(text, file).read();
}

}  // namespace wirewise
