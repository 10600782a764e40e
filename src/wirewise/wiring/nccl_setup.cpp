#include "wirewise/wiring/nccl_setup.h"

#include <algorithm>
#include <string_view>

#include "wirewise/base/text.h"

namespace wirewise {
namespace {

bool contains(const std::string& text, std::string_view what) { return text.find(what) != std::string::npos; }

/// "NET/Socket : Using [0]docker0:172.17.0.1<0> [1]eth0:…", "Bootstrap : Using eth0:10.0.0.1<0>", "Bootstrap: Using eth0:…": one of them.
void add_interface(std::string_view word, const std::string& host, bool sockets, NcclLog& log) {
  if (word.starts_with('[')) word.remove_prefix(std::min(word.find(']') + 1, word.size()));
  const std::size_t colon = word.find(':'), end = word.rfind('<');
  if (colon == std::string_view::npos || colon == 0 || end == std::string_view::npos || end <= colon) return;
  NcclInterface added{host, std::string(word.substr(0, colon)), std::string(word.substr(colon + 1, end - colon - 1)), sockets};
  constexpr std::size_t kMost = 4096;
  if (log.interfaces.size() < kMost && std::find(log.interfaces.begin(), log.interfaces.end(), added) == log.interfaces.end()) log.interfaces.push_back(std::move(added));
}

}  // namespace

bool read_nccl_setup(const NcclLine& line, const std::vector<std::string>& words, NcclLog& log) {
  const std::string& first = words.front();
  const std::string& text = line.text;
  const auto after = [&](std::string_view what) { return std::string(trimmed(std::string_view(text).substr(text.find(what) + what.size()))); };
  if (first == "Using" && words.size() >= 3 && words[1] == "network") {
    log.networks[line.host] = after("Using network ");  // "AWS Libfabric"
  } else if (first == "Assigned" && contains(text, "NET plugin ")) {
    const std::string name = after("NET plugin ");
    log.networks[line.host] = name.substr(0, name.find(" to comm"));
  } else if (contains(text, "Failed to open libibverbs")) {
    log.no_verbs = true;
    log.no_ib.insert(line.host);
  } else if (first == "NET/IB" && contains(text, "No device found")) {
    log.no_ib.insert(line.host);
  } else if (first == "NET/IB" && words.size() > 3 && words[2] == "Using") {
    const std::string devices = after("Using ");
    if (contains(devices, ":1/") || (devices.size() > 2 && devices[0] == '[' && devices[1] >= '0' && devices[1] <= '9'))
      log.ib_devices[line.host] = std::string(trimmed(std::string_view(devices).substr(0, devices.find(';'))));
  } else if ((first == "NET/Socket" || first == "Bootstrap" || first == "Bootstrap:") && contains(text, "Using ")) {
    for (const std::string& word : words) add_interface(word, line.host, first == "NET/Socket", log);
  } else if (first == "NET/OFI" && (contains(text, "Selected Provider is ") || contains(text, "Selected provider is "))) {
    const std::string provider = after("rovider is ");
    log.providers[line.host] = provider.substr(0, provider.find_first_of(" ,"));
  } else if (const std::size_t set = text.find(" set by environment to "); set != std::string::npos) {
    std::string value = text.substr(set + 23);
    if (!value.empty() && value.back() == '.') value.pop_back();
    log.settings[text.substr(0, set)] = value;
  } else if (contains(text, "GPU Direct RDMA") && (contains(text, "nabled for") || contains(text, "RDMA Enabled") || contains(text, "RDMA enabled"))) {
    log.gdr_enabled = true;
  } else if (contains(text, "GPU Direct RDMA Disabled")) {
    if (first != "NET/Socket") log.gdr_disabled = true;  // sockets never can
    if (contains(text, "distance") && log.gdr_far.empty()) log.gdr_far = text;
  } else if (contains(text, "DMA-BUF is available")) {
    log.dmabuf = true;
  } else {
    return false;
  }
  return true;
}

}  // namespace wirewise
