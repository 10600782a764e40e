// ibstat: the InfiniBand and RoCE adapters of one host, a paragraph each with its ports below.
#include <algorithm>

#include "wirewise/base/text.h"
#include "wirewise/wiring/key_lines.h"
#include "wirewise/wiring/nic_host.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostNics = 256, kMostPorts = 64;
constexpr double kMostGbit = 100000;

/// The name of "CA 'mlx5_0'"; empty for other lines.
std::string adapter_of(const TextLine& line) {
  const std::string_view text = trimmed(line.text);
  if (text.substr(0, 4) != "CA '" || text.size() < 6) return {};
  return std::string(text.substr(4, text.find('\'', 4) == std::string_view::npos ? std::string_view::npos : text.find('\'', 4) - 4));
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : file_(file), lines_(text_lines(text)) { reading_.format = Format::kIbstat; }

  Reading read() {
    for (const TextLine& line : lines_) read_line(line);
    if (nics_.empty()) throw unreadable(file_, 0, 0, "there is no adapter (CA 'mlx5_0').", "Give the whole of what ibstat prints.");
    for (const NicSeen& nic : nics_) {
      if (nic.ports.empty()) note(nic.line, "what is said of " + nic.name + " ends before its ports are described.");
      for (const NicPort& port : nic.ports) {
        if (port.state.empty() || port.layer.empty()) note(port.line, "what is said of port " + std::to_string(port.number) + " of " + nic.name + " ends before its " + (port.state.empty() ? "state." : "link layer."));
      }
    }
    add_nic_host(nics_, reading_);
    return std::move(reading_);
  }

 private:
  void note(int line, std::string text) {
    reading_.notes.push_back({line, 0, std::move(text)});
    reading_.partial = true;
  }

  void read_line(const TextLine& line) {
    if (std::string name = adapter_of(line); !name.empty()) {
      if (std::any_of(nics_.begin(), nics_.end(), [&](const NicSeen& nic) { return nic.name == name; })) {
        throw unreadable(file_, line.number, 0, "the adapter " + printable(name) + " stands there twice.", "Give the output of one host.");
      }
      if (nics_.size() == kMostNics) throw unreadable(file_, line.number, 0, "there are more than " + std::to_string(kMostNics) + " adapters.");
      nics_.emplace_back();
      nics_.back().name = std::move(name);
      nics_.back().line = line.number;
      return;
    }
    const auto pair = key_line(line);
    if (!pair || nics_.empty()) return;
    NicSeen& nic = nics_.back();
    if (pair->key == "CA type") nic.model = pair->value;
    if (pair->key == "Firmware version") nic.firmware = pair->value;
    if (pair->key.substr(0, 5) == "Port " && pair->value.empty()) {
      const auto number = parse_integer(std::string_view(pair->key).substr(5));
      if (!number || *number < 1 || *number > 255) throw unreadable(file_, line.number, 0, printable(pair->key) + " is no port.");
      if (nic.ports.size() == kMostPorts) throw unreadable(file_, line.number, 0, "the adapter has more than " + std::to_string(kMostPorts) + " ports.");
      nic.ports.push_back({static_cast<int>(*number), "", "", 0, line.number});
      return;
    }
    if (nic.ports.empty()) return;
    NicPort& port = nic.ports.back();
    if (pair->key == "State") port.state = pair->value;
    if (pair->key == "Link layer") port.layer = pair->value;
    if (pair->key == "Rate" && !pair->value.empty()) read_rate(line, *pair, port);
  }

  /// Whole Gbit/s; 2.5 of single data rate.
  void read_rate(const TextLine& line, const KeyLine& pair, NicPort& port) const {
    std::string whole = pair.value;
    double tenth = 0;
    if (const std::size_t dot = whole.find('.'); dot != std::string::npos && dot + 2 == whole.size()) {
      tenth = parse_integer(whole.substr(dot + 1)).value_or(-100) / 10.0;
      whole.resize(dot);
    }
    const auto rate = parse_integer(whole);
    if (!rate || *rate < 0 || tenth < 0 || static_cast<double>(*rate) > kMostGbit) {
      throw unreadable(file_, line.number, pair.column, printable(pair.value) + " is no rate in Gbit/s.");
    }
    port.gbit = static_cast<double>(*rate) + tenth;
  }

  std::string_view file_;
  std::vector<TextLine> lines_;
  std::vector<NicSeen> nics_;
  Reading reading_;
};

}  // namespace

bool looks_like_ibstat(const std::vector<TextLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const TextLine& line) { return !adapter_of(line).empty(); });
}

Reading read_ibstat(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

}  // namespace wirewise
