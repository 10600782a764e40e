// ibv_devinfo: the RDMA devices of one host with their ports; with -v also the rate (active_width, active_speed).
#include <algorithm>
#include <cstdlib>
#include <set>

#include "wirewise/base/text.h"
#include "wirewise/wiring/key_lines.h"
#include "wirewise/wiring/nic_host.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostNics = 256, kMostPorts = 64;

/// 4 of "4X (2)"; 50 of "50.0 Gbps (64)"; 0 of what is neither.
double leading_number(const std::string& text) {
  if (text.size() > 32 || text.empty() || text.front() < '0' || text.front() > '9') return 0;
  const double value = std::strtod(text.c_str(), nullptr);
  return value > 0 && value < 1e5 ? value : 0;
}

/// "PORT_ACTIVE" of "PORT_ACTIVE (4)".
std::string word_of(const std::string& value) { return value.substr(0, value.find_first_of(" \t")); }

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : file_(file), lines_(text_lines(text)) { reading_.format = Format::kIbvDevinfo; }

  Reading read() {
    for (const TextLine& line : lines_) read_line(line);
    guess_layers();
    if (nics_.empty()) throw unreadable(file_, 0, 0, "there is no device (hca_id: mlx5_0).", "Give the whole of what ibv_devinfo prints.");
    for (const NicSeen& nic : nics_) {
      if (nic.ports.empty()) note(nic.line, "what is said of " + nic.name + " ends before its ports are described.", true);
      for (const NicPort& port : nic.ports) {
        if (port.state.empty()) note(port.line, "what is said of port " + std::to_string(port.number) + " of " + nic.name + " ends before its state.", true);
      }
    }
    add_nic_host(nics_, reading_);
    reading_.facts.insert(reading_.facts.end(), facts_.begin(), facts_.end());
    return std::move(reading_);
  }

 private:
  void note(int line, std::string text, bool partial = false) {
    reading_.notes.push_back({line, 0, std::move(text)});
    reading_.partial = reading_.partial || partial;
  }

  /// Old versions don't print the link layer. Ports of InfiniBand have a LID, those of Ethernet none.
  void guess_layers() {
    for (NicSeen& nic : nics_) {
      const bool software = nic.name.starts_with("rxe") || nic.name.starts_with("siw");
      if (software) note(nic.line, nic.name + " is RDMA in software (" + (nic.name[0] == 'r' ? "Soft-RoCE" : "Soft-iWARP") + ") over an Ethernet interface.");
      for (NicPort& port : nic.ports) {
        if (!port.layer.empty() || port.state.empty()) continue;
        const bool ethernet = software || lidless_.contains({nic.name, port.number});
        if (!ethernet && !with_lid_.contains({nic.name, port.number})) {
          note(nic.line, "what is said of " + nic.name + " ends before its ports are described.", true);
          continue;
        }
        port.layer = ethernet ? "Ethernet" : "InfiniBand";
        if (!software) note(port.line, "the link layer of " + nic.name + " port " + std::to_string(port.number) + " isn't stated; " + port.layer + " is assumed, as it has " + (ethernet ? "no" : "a") + " LID.");
      }
    }
  }

  void read_line(const TextLine& line) {
    const auto pair = key_line(line);
    if (!pair) return;
    const std::string& value = pair->value;
    if (pair->key == "hca_id") {
      if (value.empty()) throw unreadable(file_, line.number, pair->column, "the device has no name.");
      if (std::any_of(nics_.begin(), nics_.end(), [&](const NicSeen& nic) { return nic.name == value; })) {
        throw unreadable(file_, line.number, pair->column, "the device " + printable(value) + " stands there twice.", "Give the output of one host.");
      }
      if (nics_.size() == kMostNics) throw unreadable(file_, line.number, 0, "there are more than " + std::to_string(kMostNics) + " devices.");
      nics_.emplace_back();
      nics_.back().name = value;
      nics_.back().line = line.number;
      return;
    }
    if (nics_.empty()) return;
    NicSeen& nic = nics_.back();
    if (pair->key == "fw_ver") nic.firmware = value;
    if (pair->key == "transport") {
      nic.rdma = value.substr(0, 10) == "InfiniBand" || value.substr(0, 5) == "iWARP";
      facts_.push_back({nic.name, "transport", word_of(value), line.number});
    }
    if (pair->key == "vendor_part_id") nic.model = "part " + value;
    if (pair->key == "port" && !value.empty()) {
      const auto number = parse_integer(value);
      if (!number || *number < 1 || *number > 255) throw unreadable(file_, line.number, pair->column, printable(value) + " is no port.");
      if (nic.ports.size() == kMostPorts) throw unreadable(file_, line.number, 0, "the device has more than " + std::to_string(kMostPorts) + " ports.");
      nic.ports.push_back({static_cast<int>(*number), "", "", 0, line.number});
      width_ = speed_ = 0;
      return;
    }
    if (nic.ports.empty()) return;
    read_port(line, *pair, nic, nic.ports.back());
  }

  void read_port(const TextLine& line, const KeyLine& pair, const NicSeen& nic, NicPort& port) {
    if (pair.key == "state") port.state = word_of(pair.value);
    if (pair.key == "port_lid") (parse_integer(pair.value) == 0 ? lidless_ : with_lid_).emplace(nic.name, port.number);
    if (pair.key == "link_layer") port.layer = pair.value == "IB" ? "InfiniBand" : pair.value;
    if (pair.key == "active_mtu" && !pair.value.empty()) facts_.push_back({nic.name + " port " + std::to_string(port.number), "active MTU", word_of(pair.value), line.number});
    if (pair.key == "active_width") width_ = leading_number(pair.value);
    if (pair.key == "active_speed") speed_ = leading_number(pair.value);
    if (width_ > 0 && speed_ > 0) port.gbit = width_ * speed_;
  }

  std::string_view file_;
  std::vector<TextLine> lines_;
  std::vector<NicSeen> nics_;
  std::vector<Fact> facts_;
  std::set<std::pair<std::string, int>> lidless_, with_lid_;  // device and port
  Reading reading_;
  double width_ = 0, speed_ = 0;  // lanes and Gbit/s a lane of the port that is read
};

}  // namespace

bool looks_like_ibv_devinfo(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) { return trimmed(line.text).substr(0, 7) == "hca_id:"; });
}

Reading read_ibv_devinfo(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

}  // namespace wirewise
