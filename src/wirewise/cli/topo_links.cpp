// wirewise topo links: interconnects compared per direction, beside the sum of both that data sheets print. wirewise topo list: the machines
// that --from takes by name.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "wirewise/cli/topo.h"
#include "wirewise/wiring/cluster_file.h"
#include "wirewise/wiring/link_classes.h"

namespace wirewise {
namespace {

using Json = nlohmann::ordered_json;

std::string connection(const LinkClass& of) {
  if (of.unit == "lane") return fmt::format("x{}", of.full);
  if (of.unit == "link") return of.full == 1 ? "1 link" : fmt::format("{} links", of.full);
  return "1 " + of.unit;
}

void print_links(bool json) {
  if (json) {
    Json all = Json::array();
    for (const LinkClass& of : link_classes()) {
      all.push_back({{"name", of.name}, {"kind", name_of(of.kind)}, {"connection", connection(of)}, {"units", of.full},
                     {"spec_GBps", of.spec * of.full / 1e9}, {"achievable_GBps", of.usable * of.full / 1e9}, {"advertised_GBps", of.advertised_gbyte},
                     {"latency_us", of.latency > 0 ? Json(of.latency * 1e6) : Json()}, {"source", of.source}, {"notes", of.notes}});
    }
    std::cout << Json{{"links", all}}.dump() << "\n";
    return;
  }
  std::cout << "GB/s (10^9 bytes a second) of a whole connection. Spec and achievable are per direction; advertised is the sum of both, as\n"
               "data sheets print it: compare per direction with per direction.\n\n";
  std::cout << fmt::format("{:<28}{:<12}{:>10}{:>13}{:>13}{:>13}   {}\n", "", "connection", "spec", "achievable", "advertised", "latency us", "used in");
  for (const LinkClass& of : link_classes()) {
    const std::string latency = of.latency > 0 ? fmt::format("{:.3g}", of.latency * 1e6) : "-";
    std::string line = fmt::format("{:<28}{:<12}{:>10.4g}{:>13.4g}{:>13.4g}{:>13}   {}", of.name, connection(of), of.spec * of.full / 1e9, of.usable * of.full / 1e9,
                                   of.advertised_gbyte, latency, of.notes.size() <= 26 ? of.notes : "");
    line.erase(line.find_last_not_of(' ') + 1);
    std::cout << line << "\n";
  }
  std::cout << "\nSources\n";
  for (const LinkClass& of : link_classes()) {
    std::string line = of.name + ":";
    std::string text = of.source + (of.notes.size() > 26 ? ". " + of.notes : "");
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      if (line.size() + 1 + end - at > 118) {
        std::cout << line << "\n";
        line = "   ";
      }
      line += " " + text.substr(at, end - at);
      at = end + 1;
    }
    std::cout << line << "\n";
  }
}

}  // namespace

void register_topo_links(CLI::App& topo) {
  CLI::App* links = topo.add_subcommand("links", "Compare interconnects per direction");
  const auto json = std::make_shared<bool>(false);
  links->add_flag("--json", *json, "One JSON object on standard output");
  links->callback([json] { print_links(*json); });
}

void register_topo_list(CLI::App& topo) {
  CLI::App* list = topo.add_subcommand("list", "The machines and clusters that --from takes by name");
  const auto json = std::make_shared<bool>(false);
  list->add_flag("--json", *json, "One JSON object on standard output");
  list->callback([json] {
    if (*json) {
      Json all = Json::array();
      for (const ShippedMachine& machine : shipped_machines()) all.push_back({{"name", machine.name}, {"about", machine.about}});
      std::cout << Json{{"machines", all}}.dump() << "\n";
      return;
    }
    for (const ShippedMachine& machine : shipped_machines()) std::cout << fmt::format("{:<22}{}\n", machine.name, machine.about);
  });
}

}  // namespace wirewise
