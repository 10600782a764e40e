// Graphs are orders, not wires: they become facts. NCCL's numbers of patterns: NVIDIA/nccl src/include/graph.h.
#include "wirewise/wiring/nccl_graph.h"

#include <pugixml.hpp>
#include <set>

#include "wirewise/base/text.h"

namespace wirewise {
namespace {

std::string pattern_name(std::string_view number) {
  constexpr std::string_view kNames[] = {"balanced tree", "split tree", "tree", "ring", "NVLS", "CollNet direct"};
  const auto index = parse_integer(number);
  return index && *index >= 1 && *index <= 6 ? std::string(kNames[*index - 1]) : "pattern " + printable(number);
}

std::string order_of(pugi::xml_node channel, Reading& reading, int line) {
  std::vector<std::string> stations;
  std::set<std::string> gpus;
  for (const pugi::xml_node station : channel.children()) {
    if (station.type() != pugi::node_element) continue;  // text, which is noted
    const std::string_view kind = station.name();
    const std::string number = printable(station.attribute("dev").value());
    if (kind != "gpu" && kind != "net") {
      reading.notes.push_back({line, 0, "<" + printable(kind) + "> in a channel isn't known here; it was left out."});
      continue;
    }
    stations.push_back((kind == "gpu" ? "GPU" : "net") + number);
    if (kind == "gpu" && !gpus.insert(number).second) reading.notes.push_back({line, 0, "GPU" + number + " stands twice in a channel."});
  }
  return join(stations, " ");
}

}  // namespace

void read_nccl_graphs(const std::string& xml, Reading& reading, const std::function<int(std::ptrdiff_t)>& line_at) {
  pugi::xml_document document;
  document.load_buffer(xml.data(), xml.size(), pugi::parse_default, pugi::encoding_utf8);
  const auto line = [&](pugi::xml_node node) { return line_at(node.offset_debug()); };
  std::vector<pugi::xml_node> graphs;
  for (const pugi::xml_node top : document.children()) {
    if (std::string_view(top.name()) == "graph") graphs.push_back(top);
    else for (const pugi::xml_node graph : top.children()) graphs.push_back(graph);
  }
  if (!document.child("graphs")) {
    reading.notes.push_back({0, 0, "the <graphs> round them is missing: there may be others."});
    reading.partial = true;
  }
  for (const pugi::xml_node graph : graphs) {
    if (graph.type() != pugi::node_element) continue;
    if (std::string_view(graph.name()) != "graph") {
      reading.notes.push_back({line(graph), 0, "<" + printable(graph.name()) + "> isn't known here; it was left out."});
      continue;
    }
    const std::string subject = "graph " + printable(graph.attribute("id").value());
    const auto state = [&](const char* name, const char* attribute, const std::string& unit) {
      const std::string_view value = graph.attribute(attribute).value();
      if (!value.empty()) reading.facts.push_back({subject, name, printable(value) + unit, line(graph)});
    };
    reading.facts.push_back({subject, "pattern", pattern_name(graph.attribute("pattern").value()), line(graph)});
    state("channels", "nchannels", "");
    state("speed within a host", "speedintra", " GB/s a channel");
    state("speed between hosts", "speedinter", " GB/s a channel");
    state("farthest within a host", "typeintra", "");
    state("farthest to the network", "typeinter", "");
    int channels = 0;
    for (const pugi::xml_node channel : graph.children("channel")) {
      reading.facts.push_back({subject, "channel " + std::to_string(channels++), order_of(channel, reading, line(channel)), line(channel)});
    }
    const auto stated = parse_integer(graph.attribute("nchannels").value());
    // Files of some versions state how often the channels are used over.
    if (stated && *stated != channels) {
      reading.notes.push_back({line(graph), 0, subject + " has " + std::to_string(*stated) + " channels by what it says, and " + std::to_string(channels) + " in the file."});
    }
  }
}

}  // namespace wirewise
