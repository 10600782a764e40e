#include "wirewise/comm/ucx_settings.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise::comm {
namespace {

// Names and groups of names by which UCX_TLS may allow a transport through the memory of one host.
constexpr std::array<std::string_view, 8> kSharedMemory = {"sm", "shm", "mm", "posix", "sysv", "xpmem", "cma", "knem"};

bool is_shared_memory(std::string_view transport) {
  if (!transport.empty() && transport.front() == '\\') transport.remove_prefix(1);  // "\name": this one exactly
  transport = transport.substr(0, transport.find(':'));                             // "name:aux"
  return std::find(kSharedMemory.begin(), kSharedMemory.end(), transport) != kSharedMemory.end();
}

}  // namespace

std::string without_shared_memory(const std::string& wanted) {
  if (wanted.empty() || wanted == "all") return "^sm";
  if (wanted.front() == '^') return wanted.size() == 1 ? "^sm" : wanted + ",sm";
  std::vector<std::string> kept;
  for (const std::string& transport : split(wanted, ',')) {
    if (transport == "all") return "^sm";
    if (!is_shared_memory(transport)) kept.push_back(transport);
  }
  if (kept.empty() || (kept.size() == 1 && kept[0] == "self")) {
    throw bad_input("UCX_TLS=" + printable(wanted) + " allows no transport between hosts.",
                    "Unset it, or add one (tcp, rc, ud, dc): wirewise uses UCX between hosts only, never for shared memory.");
  }
  return join(kept, ",");
}

std::vector<std::pair<std::string, std::string>> ucx_settings(const NetworkInterface& interface,
                                                              const std::function<const char*(const char*)>& environment) {
  std::vector<std::pair<std::string, std::string>> settings;
  const char* const transports = environment("UCX_TLS");
  settings.emplace_back("TLS", without_shared_memory(transports == nullptr ? "" : transports));
  const auto unless_set = [&](const std::string& name, const std::string& value) {
    if (environment(("UCX_" + name).c_str()) == nullptr) settings.emplace_back(name, value);
  };
  std::vector<std::string> devices = interface.rdma;
  if (!interface.rdma_only) devices.push_back(interface.name);
  unless_set("NET_DEVICES", join(devices, ","));
  const bool tcp = devices.size() == 1 && interface.rdma.empty();
  if (!tcp) return settings;
  // A rendezvous only adds messages that queue behind the data of others; what is larger than the chunks that collectives send still takes
  // it, so that a receiver that is late need not hold a whole message.
  unless_set("RNDV_THRESH", "2m");
  // UCX hands sockets 8 KiB at a time: longer pieces take fewer system calls.
  unless_set("TCP_TX_SEG_SIZE", "128k");
  unless_set("TCP_RX_SEG_SIZE", "128k");
  return settings;
}

}  // namespace wirewise::comm
