// hwloc's XML (lstopo --of xml, lstopo file.xml): a machine as hwloc saw it, read by hwloc itself, and wired by what wires this machine.
//
// hwloc trusts its files. So what it is given isn't the file, but a sound document made of it (hwloc_document.h); of what else the file has, the
// bandwidth between GPUs is read here, the rest (distances, performance of memory) isn't needed.
#include <hwloc.h>

#include <algorithm>
#include <map>
#include <memory>
#include <pugixml.hpp>

#include "wirewise/base/text.h"
#include "wirewise/wiring/discover.h"
#include "wirewise/wiring/hwloc_distances.h"
#include "wirewise/wiring/hwloc_document.h"
#include "wirewise/wiring/hwloc_machine.h"
#include "wirewise/wiring/text_lines.h"
#include "wirewise/wiring/xml_scan.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostMatrix = 256;  // GPUs and NVSwitches
constexpr std::size_t kMostGiven = 1 << 30;
constexpr std::string_view kRemedy = "Give the whole of what lstopo --of xml prints.";

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : file_(file), places_(text), start_(std::min(text.find("<topology"), text.size())), text_(text.substr(start_)) {}

  Reading read() {
    const std::size_t end = text_.find("</topology>");
    if (end != std::string_view::npos) text_ = text_.substr(0, end + 11);
    pugi::xml_document document;
    const pugi::xml_parse_result result = document.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!result || end == std::string_view::npos) {
      const std::size_t at = end == std::string_view::npos ? start_ + text_.size() - (text_.empty() ? 0 : 1) : offset(result.offset);
      throw unreadable(file_, places_.line(at), places_.column(at), end == std::string_view::npos ? "the file ends before </topology>." : "the XML is broken here: " + lower_case(result.description()) + ".", std::string(kRemedy));
    }
    const pugi::xml_node topology = document.child("topology");
    for (const pugi::xml_node child : topology.children()) read_bandwidth(child);
    const std::string sound = sound_hwloc_document(topology, [&](const pugi::xml_node& node, const std::string& what) { refuse(node, what); });
    for (const auto& device : topology.select_nodes("//object[@pci_busid]")) read_address(device.node());
    return wired(sound);
  }

 private:
  [[nodiscard]] std::size_t offset(std::ptrdiff_t in_text) const { return start_ + static_cast<std::size_t>(std::max<std::ptrdiff_t>(in_text, 0)); }

  [[noreturn]] void refuse(const pugi::xml_node& node, const std::string& what) const {
    const std::size_t at = offset(node.offset_debug() - 1);  // pugixml's is that of the name
    throw unreadable(file_, places_.line(at), places_.column(at), what, std::string(kRemedy));
  }

  /// Of a PCI device and what it has: a GPU's name is below its address.
  void read_address(const pugi::xml_node& device) {
    const std::string address = pci_address(device.attribute("pci_busid").value());
    const auto keep = [&](const pugi::xml_node& node) {
      if (const auto index = parse_integer(node.attribute("gp_index").value())) address_[*index] = address;
    };
    keep(device);
    for (const pugi::xml_node node : device.children("object")) {
      if (node.attribute("osdev_type")) keep(node);
    }
  }

  /// <distances2… nbobjs="2" name="NVLinkBandwidth"><indexes>7 9</indexes><u64values>…</u64values>; of mixed objects "OSDev:7 PCIDev:9".
  void read_bandwidth(const pugi::xml_node& node) {
    const std::string_view name = node.attribute("name").value();
    if (!std::string_view(node.name()).starts_with("distances2") || (name != "NVLinkBandwidth" && name != "XGMIBandwidth")) return;
    HwlocBandwidth matrix;
    matrix.xgmi = name[0] == 'X';
    const auto take = [&](const char* element, std::vector<long long>& numbers) {
      for (const pugi::xml_node child : node.children(element)) {
        std::string text = child.child_value();
        std::replace(text.begin(), text.end(), '\n', ' ');
        for (const std::string& word : split(text, ' ')) {
          if (word.empty()) continue;
          const auto number = parse_integer(std::string_view(word).substr(word.find(':') == std::string::npos ? 0 : word.find(':') + 1));
          if (!number || *number < 0 || numbers.size() >= kMostMatrix * kMostMatrix) refuse(node, "the matrix " + std::string(name) + " has a value that is no number, or too many.");
          numbers.push_back(*number);
        }
      }
    };
    take("indexes", matrix.objects);
    take("u64values", matrix.values);
    if (matrix.objects.size() > kMostMatrix || matrix.values.size() != matrix.objects.size() * matrix.objects.size()) refuse(node, "the matrix " + std::string(name) + " has not as many values as it needs.");
    bandwidth_.push_back(std::move(matrix));
  }

  Reading wired(const std::string& xml) {
    hwloc_topology_t topology = nullptr;
    if (xml.size() > kMostGiven || hwloc_topology_init(&topology) != 0) throw unreadable(file_, 0, 0, "hwloc can't be started.");
    const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> owner(topology, &hwloc_topology_destroy);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_set_xmlbuffer(topology, xml.c_str(), static_cast<int>(xml.size()) + 1) != 0 || hwloc_topology_load(topology) != 0) {
      throw unreadable(file_, places_.line(start_), 0, "hwloc doesn't take it for a machine.", std::string(kRemedy));
    }
    Machine machine = machine_of(topology);
    if (machine.host.empty()) machine.host = "host0";
    Reading reading = wire(machine);
    reading.format = Format::kHwlocXml;
    for (const HwlocBandwidth& matrix : bandwidth_) add_bandwidth(matrix, address_, reading);
    const bool slowed = std::any_of(machine.pci.begin(), machine.pci.end(), [](const PciDevice& device) { return is_gpu(device) && device.gbyte > 0; });
    if (slowed) reading.notes.push_back({0, 0, "the links of GPUs are what they ran at when the file was written; GPUs that idle slow theirs."});
    if (machine.pci.empty()) reading.notes.push_back({0, 0, "the file has no PCI devices; lstopo --no-io leaves them out."});
    return reading;
  }

  std::string_view file_;
  TextPlaces places_;
  std::size_t start_;
  std::string_view text_;
  std::map<long long, std::string> address_;  // by gp_index
  std::vector<HwlocBandwidth> bandwidth_;
};

}  // namespace

bool looks_like_hwloc_xml(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) {
    const std::string_view text = trimmed(line.text);
    return text.starts_with("<topology>") || text.starts_with("<topology ");
  });
}

Reading read_hwloc_xml(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

}  // namespace wirewise
