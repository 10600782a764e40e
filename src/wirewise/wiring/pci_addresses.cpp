#include "wirewise/wiring/pci_addresses.h"

#include <fmt/format.h>

#include <map>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise {
namespace {

constexpr int kFirstDomain = 0xf000;
constexpr int kBuses = 256;

bool has_address(DeviceKind kind) { return kind == DeviceKind::kPcieSwitch || kind == DeviceKind::kGpu || kind == DeviceKind::kNic; }

/// "00000000:3B:00.0" is "0000:3b:00.0".
std::string usual(const std::string& address) {
  std::string text = lower_case(address);
  if (text.size() == 16 && text.starts_with("0000") && text[8] == ':') text.erase(0, 4);
  return text;
}

class Numbering {
 public:
  Numbering(const Wiring& wiring, const HostTree& tree) : wiring_(wiring), tree_(tree) {
    found_.of.resize(wiring.devices.size());
    for (std::size_t i = 0; i < wiring.devices.size(); ++i) {
      const Device& one = wiring.devices[i];
      if (!tree.reached[i] || !has_address(one.kind) || one.pci.empty()) continue;
      const auto [other, fresh] = taken_.try_emplace(found_.of[i] = usual(one.pci), static_cast<int>(i));
      if (!fresh) {
        throw bad_input(printable(one.name) + " and " + printable(device(other->second).name) + " have one PCI address, " + printable(one.pci) + ".", "Mend the description.");
      }
    }
  }

  PciAddresses number() {
    below(tree_.host);
    return std::move(found_);
  }

 private:
  [[nodiscard]] const Device& device(int index) const { return wiring_.devices[static_cast<std::size_t>(index)]; }

  /// Root complexes have a domain each, and so has what hangs on none.
  void below(int index) {
    for (const HostTree::Down& down : tree_.of(index)) {
      const DeviceKind kind = device(down.device).kind;
      if (kind == DeviceKind::kHostBridge || has_address(kind)) next_domain();
      if (kind == DeviceKind::kHostBridge) ports(down.device);
      else if (has_address(kind)) port(down.device);
      else below(down.device);
    }
  }

  void ports(int index) {
    for (const HostTree::Down& down : tree_.of(index)) port(down.device);
  }

  void port(int index) {
    if (has_address(device(index).kind)) {
      std::string& address = found_.of[static_cast<std::size_t>(index)];
      if (address.empty()) {
        do address = fmt::format("{:04x}:{:02x}:00.0", domain_, take_bus());
        while (!taken_.try_emplace(address, index).second);
        found_.made_up.push_back(index);
      }
      if (device(index).kind == DeviceKind::kPcieSwitch) take_bus();  // the one within
    }
    ports(index);
  }

  void next_domain() {
    ++domain_;
    bus_ = 1;  // root ports themselves are on bus 0
  }

  int take_bus() {
    if (bus_ == kBuses) next_domain();
    return bus_++;
  }

  const Wiring& wiring_;
  const HostTree& tree_;
  PciAddresses found_;
  std::map<std::string, int> taken_;
  int domain_ = kFirstDomain - 1, bus_ = 1;
};

}  // namespace

PciAddresses pci_addresses(const Wiring& wiring, const HostTree& tree) { return Numbering(wiring, tree).number(); }

}  // namespace wirewise
