#include "wirewise/wiring/svg_style.h"

#include <fmt/format.h>

#include <algorithm>

#include "wirewise/base/text.h"

namespace wirewise {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string fitting(const std::string& text, double width) {
  const std::string shown = printable(text);
  const auto most = static_cast<std::size_t>(std::max(3.0, width / 6.2));
  if (shown.size() <= most) return escaped(shown);
  std::size_t end = most - 1;
  while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;  // not within a letter
  return escaped(shown.substr(0, end)) + "…";
}

double width_of(std::string_view kind, BytesPerSecond beta) {
  const bool network = kind == name_of(LinkKind::kEthernet) || kind == name_of(LinkKind::kInfiniband);
  return network ? std::clamp(1.0 + beta / 1e9 / 60, 1.2, 5.0) : std::clamp(1.0 + beta / 1e9 / 18, 1.2, 9.0);
}
std::string named_rack(const std::string& rack) { return rack.starts_with("rack") ? rack : "rack " + rack; }
std::string rate(BytesPerSecond beta) { return fmt::format("{:.3g} GB/s", beta / 1e9); }

const std::string_view kSvgStyle = R"(
svg { background: #ffffff; font: 11px system-ui, sans-serif; }
text { fill: #1c2430; } .small { font-size: 9.5px; fill: #55606e; }
rect { stroke: #8a94a3; fill: #ffffff; } .host { fill: #f4f6f9; } .numa { fill: #e9edf3; } .bridge { fill: #f7f9fb; stroke-dasharray: 4 3; }
.pcie { fill: #dfe9f7; stroke: #3b78c3; } .gpu { fill: #d9f0d3; stroke: #4b8a2f; } .nic { fill: #fde7c8; stroke: #c77a12; }
.nvswitch { fill: #bfe3b2; stroke: #4b8a2f; } .switch { fill: #fbd9a8; stroke: #c77a12; } .cpu { fill: #ece4f7; stroke: #7a5bb0; } .unplaced { stroke-dasharray: 3 3; }
.line { fill: none; stroke-linecap: round; } .ethernet, .infiniband { stroke-opacity: 0.8; } .nvlink { stroke: #4b8a2f; } .xgmi { stroke: #b0303a; } .ethernet { stroke: #c77a12; } .infiniband { stroke: #9a3fb5; }
@media (prefers-color-scheme: dark) {
svg { background: #14181e; } text { fill: #e6eaf0; } .small { fill: #9aa6b5; } rect { fill: #14181e; stroke: #6b7686; }
.host { fill: #1b2129; } .numa { fill: #232b35; } .bridge { fill: #1d242d; } .pcie { fill: #1e3350; stroke: #6ea3e6; } .gpu { fill: #234018; stroke: #7cc45c; }
.nic { fill: #4a3310; stroke: #e8a13a; } .nvswitch { fill: #2f5620; stroke: #7cc45c; } .switch { fill: #5a3d10; stroke: #e8a13a; } .cpu { fill: #342a4a; stroke: #a98ae0; }
.nvlink { stroke: #7cc45c; } .xgmi { stroke: #f07a84; } .ethernet { stroke: #e8a13a; } .infiniband { stroke: #d58aee; } }
)";

std::string_view style_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kHost: return "host";
    case DeviceKind::kSocket: return "host";
    case DeviceKind::kNumaNode: return "numa";
    case DeviceKind::kHostBridge: return "bridge";
    case DeviceKind::kPcieSwitch: return "pcie";
    case DeviceKind::kCpu: return "cpu";
    case DeviceKind::kGpu: return "gpu";
    case DeviceKind::kNvSwitch: return "nvswitch";
    case DeviceKind::kNic: return "nic";
    case DeviceKind::kSwitch: return "switch";
  }
  return "";
}

}  // namespace wirewise
