// The wiring as a picture. PCIe's tree is nesting: a box lies in what it hangs on, and says how fast its way up is. What joins boxes besides
// are lines: NVLinks below the GPUs, the network above the hosts. Kinds of hosts fill rows as wide as a screen; the network's lines of lower rows
// go up beside the others, a lane a row.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "wirewise/base/text.h"
#include "wirewise/wiring/svg_style.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

constexpr double kLeafWidth = 86, kLeafHeight = 42, kGap = 8, kTitle = 30, kSwitchWidth = 120, kMargin = 24;
constexpr double kBareNode = 112;  // a NUMA node that holds nothing: as wide as a list of CPUs
constexpr double kLevel = 130;  // from one level of switches to the next
constexpr double kRow = 1552, kLane = 8;  // of a row of hosts, unless one alone is wider; of the network's lines of a lower row
constexpr std::size_t kMostSwitches = 11;  // of a level that are drawn one by one: as many as stand side by side in a row

class Picture {
 public:
  explicit Picture(const Wiring& wiring) : wiring_(wiring), out_(links_by_device(wiring)), by_host_(devices_by_host(wiring)), up_(wiring.devices.size(), -1), below_(wiring.devices.size()), box_(wiring.devices.size()) {}

  std::string draw() {
    for (int host : devices_of(wiring_, DeviceKind::kHost)) grow(host);
    collect_kinds();
    double hosts = kMargin;
    for (int level = top_level(); level >= 0; --level) hosts += switches_of(level).empty() ? 0 : kLevel;
    hosts_top_ = hosts;
    double bottom = draw_hosts(hosts);
    double y = kMargin;
    const double wide = std::max(right_ - kMargin, 4 * kSwitchWidth);
    for (int level = top_level(); level >= 0; --level) y = draw_level(level, y, wide);
    for (std::size_t i = 0; i < wiring_.devices.size(); ++i) {
      const Device& device = wiring_.devices[i];
      if (device.host >= 0 || device.kind != DeviceKind::kNvSwitch) continue;
      box(static_cast<int>(i), kMargin, bottom + 3 * kGap, std::max(200.0, right_ - kMargin), 24, (device.nvls ? "sums in the switch, " : "") + rate_in(static_cast<int>(i)));
      bottom += 24 + 3 * kGap;
    }
    network_lines();
    bottom = legend(bottom + 2 * kGap);
    return fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\">\n<style>{2}</style>\n", right_ + kMargin, bottom + kMargin, kSvgStyle) +
           boxes_ + texts_ + "</svg>\n";
  }

 private:
  struct Box {
    double x = 0, y = 0, width = 0, height = 0;
  };

  /// What a host's box holds, and how wide it is.
  struct Shape {
    std::vector<int> parts, nvswitches, gpus;
    double width = kGap, height = kLeafHeight;  // the latter of its parts
  };

  Shape shape_of(int host) {
    Shape shape;
    std::vector<int> loose;  // what hangs on nothing
    for (const int device : by_host_[static_cast<std::size_t>(at(host).host)]) {
      if (device == host) continue;
      if (at(device).kind == DeviceKind::kNvSwitch) shape.nvswitches.push_back(device);
      else if (up_[static_cast<std::size_t>(device)] < 0) loose.push_back(device);
      if (at(device).kind == DeviceKind::kGpu) shape.gpus.push_back(device);
    }
    shape.parts = below(host);
    shape.parts.insert(shape.parts.end(), loose.begin(), loose.end());
    for (int part : shape.parts) {
      const auto [w, h] = size_of(part);
      shape.width += w + kGap;
      shape.height = std::max(shape.height, h);
    }
    shape.width = std::max(shape.width, 260.0);
    return shape;
  }

  /// Rows of kinds of hosts from `top` on. Returns where the last ends.
  double draw_hosts(double top) {
    std::vector<Shape> shapes;
    std::vector<std::size_t> row_of;  // of each kind
    double x = 0;
    for (const auto& [host, members] : kinds_) {
      shapes.push_back(shape_of(host));
      const bool fits = row_of.empty() || x + 3 * kGap + shapes.back().width <= kRow;
      row_of.push_back(row_of.empty() ? 0 : row_of.back() + (fits ? 0 : 1));
      x = row_of.size() > 1 && fits ? x + 3 * kGap + shapes.back().width : shapes.back().width;
    }
    const double lanes = row_of.empty() ? 0 : kLane * static_cast<double>(row_of.back());
    double bottom = top;
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      if (i == 0 || row_of[i] != row_of[i - 1]) {
        x = kMargin + lanes;
        rows_.push_back(i == 0 ? top : bottom + 5 * kGap);
      }
      row_of_kind_.push_back(row_of[i]);
      const double height = draw_host(kinds_[i].first, kinds_[i].second, shapes[i], x, rows_.back());
      x += shapes[i].width + 3 * kGap;
      bottom = std::max(bottom, rows_.back() + height);
    }
    return bottom;
  }

  [[nodiscard]] const Device& at(int device) const { return wiring_.devices[static_cast<std::size_t>(device)]; }
  [[nodiscard]] const Link& link(int index) const { return wiring_.links[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::vector<int>& below(int device) { return below_[static_cast<std::size_t>(device)]; }

  void grow(int host) {
    std::vector<int> reached{host};
    for (std::size_t i = 0; i < reached.size(); ++i) {
      for (int index : out_[static_cast<std::size_t>(reached[i])]) {
        const LinkKind kind = link(index).kind;
        const int to = link(index).to;
        if ((kind != LinkKind::kPcie && kind != LinkKind::kSockets && kind != LinkKind::kSharedMemory) || to == host || up_[static_cast<std::size_t>(to)] != -1) continue;
        if (at(to).host != at(host).host) continue;
        up_[static_cast<std::size_t>(to)] = index;
        below(reached[i]).push_back(to);
        reached.push_back(to);
      }
    }
  }

  /// Hosts that look alike are one kind, drawn by the first of them.
  void collect_kinds() {
    std::map<int, std::string> looks;
    for (const Device& device : wiring_.devices) {
      if (device.host < 0 || device.kind == DeviceKind::kHost) continue;
      looks[device.host] += fmt::format("{}|{}|{}|{}|{};", name_of(device.kind), device.name, device.model, device.numa, device.placed);
    }
    for (const Link& one : wiring_.links) {
      if (at(one.from).host >= 0) looks[at(one.from).host] += fmt::format("{}{}>{}{};", at(one.from).kind == DeviceKind::kHost ? "" : at(one.from).name, one.beta, at(one.to).host >= 0 && at(one.to).kind != DeviceKind::kHost ? at(one.to).name : "", one.lanes);
    }
    std::map<std::string, std::size_t> known;
    for (int host : devices_of(wiring_, DeviceKind::kHost)) {
      const auto [place, fresh] = known.try_emplace(looks[at(host).host], kinds_.size());
      if (fresh) kinds_.push_back({host, {}});
      kinds_[place->second].second.push_back(host);
    }
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      for (int host : kinds_[i].second) kind_of_host_[at(host).host] = static_cast<int>(i);
    }
  }

  [[nodiscard]] int top_level() const {
    int level = -1;
    for (const Device& device : wiring_.devices) level = device.host < 0 && device.kind == DeviceKind::kSwitch ? std::max(level, device.level) : level;
    return level;
  }

  void text(double x, double y, std::string_view style, const std::string& content) {
    texts_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, style.empty() ? "" : fmt::format(" class=\"{}\"", style), content);
  }

  /// The rectangle of a device, with its name and one more line.
  void box(int device, double x, double y, double width, double height, const std::string& second, const std::string& name = {}, const std::string& title = {}) {
    const Device& one = at(device);
    box_[static_cast<std::size_t>(device)] = {x, y, width, height};
    const std::string full = title.empty() ? one.name + (one.model.empty() ? "" : ", " + one.model) + (one.pci.empty() ? "" : ", " + one.pci) : title;
    boxes_ += fmt::format("<rect class=\"{}{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"5\"><title>{}</title></rect>\n", style_of(one.kind), one.placed ? "" : " unplaced", x, y, width, height, escaped(full));
    const bool flat = height < 28;
    text(x + 6, y + (flat ? 15.5 : 14), "", fitting(name.empty() ? one.name : name, flat ? width / 2 : width - 8));
    if (!second.empty() && flat) texts_ += fmt::format("<text class=\"small\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", x + width - 6, y + 15.5, fitting(second, width / 2));
    if (!second.empty() && !flat) text(x + 6, y + 26, "small", fitting(second, (width - 8) * 1.15));
    right_ = std::max(right_, x + width);
  }

  [[nodiscard]] std::string way_up(int device) const {
    const int index = up_[static_cast<std::size_t>(device)];
    if (index < 0) return at(device).placed ? "" : "place not known";
    return rate(link(index).beta) + (link(index).provenance == Provenance::kAssumed ? ", assumed" : "");
  }

  [[nodiscard]] std::string rate_in(int device) const {
    const auto& out = out_[static_cast<std::size_t>(device)];
    return out.empty() ? "" : fmt::format("{} links of {}", out.size(), rate(link(out.front()).beta));
  }

  [[nodiscard]] std::string second_line(int device) const {
    return (at(device).kind == DeviceKind::kNumaNode && !at(device).cpus.empty() ? "CPUs " + at(device).cpus + ", " : "") + way_up(device);
  }

  std::pair<double, double> size_of(int device) {
    if (below(device).empty() && at(device).kind == DeviceKind::kNumaNode) return {kBareNode, kLeafHeight};
    if (below(device).empty()) return {std::clamp(5.6 * static_cast<double>(second_line(device).size()) + 14, kLeafWidth, 3 * kLeafWidth), kLeafHeight};
    double width = 0, height = 0;
    for (const std::vector<int>& row : rows_below(device)) {
      double wide = kGap, high = 0;
      for (int child : row) {
        const auto [w, h] = size_of(child);
        wide += w + kGap;
        high = std::max(high, h);
      }
      width = std::max(width, wide);
      height += (height > 0 ? kGap : 0) + high;
    }
    return {std::max(width, kLeafWidth + 2 * kGap), kTitle + height + kGap};
  }

  /// Whether all that hangs on a device, or the device itself where nothing does, is of one kind.
  [[nodiscard]] bool only(DeviceKind kind, int device) {
    if (below(device).empty()) return at(device).kind == kind;
    return std::all_of(below(device).begin(), below(device).end(), [&](int child) { return only(kind, child); });
  }

  /// What hangs on a device, side by side; NICs above GPUs where it holds just these: the network's lines go up, NVLinks down.
  std::vector<std::vector<int>> rows_below(int device) {
    std::vector<int> nics, gpus;
    for (int child : below(device)) {
      if (only(DeviceKind::kNic, child)) nics.push_back(child);
      else if (only(DeviceKind::kGpu, child)) gpus.push_back(child);
      else return {below(device)};
    }
    if (nics.empty() || gpus.empty()) return {below(device)};
    std::vector<std::vector<int>> rows;
    const std::size_t most = std::max<std::size_t>(gpus.size(), 2);
    for (std::size_t i = 0; i < nics.size(); ++i) {
      if (i % most == 0) rows.emplace_back();
      rows.back().push_back(nics[i]);
    }
    rows.push_back(std::move(gpus));
    return rows;
  }

  void draw_tree(int device, double x, double y, double height) {
    const auto [width, least] = size_of(device);
    box(device, x, y, width, std::max(least, height), second_line(device));
    double row_y = y + kTitle;
    const auto rows = rows_below(device);
    for (const std::vector<int>& row : rows) {
      double at_x = x + kGap, inner = rows.size() == 1 ? std::max(least, height) - kTitle - kGap : 0;
      for (int child : row) inner = std::max(inner, size_of(child).second);
      for (int child : row) {
        draw_tree(child, at_x, row_y, below(child).empty() ? 0 : inner);
        at_x += size_of(child).first + kGap;
      }
      row_y += inner + kGap;
    }
  }

  /// Returns its height.
  double draw_host(int host, const std::vector<int>& members, const Shape& shape, double x, double y) {
    const auto& [parts, nvswitches, gpus, width, height] = shape;
    int span = 0;
    for (int gpu : gpus) {
      for (int index : out_[static_cast<std::size_t>(gpu)]) {
        if (joins_gpus(link(index).kind) && at(link(index).to).kind == DeviceKind::kGpu) span = std::max(span, 1);
      }
    }
    const double nvlink_zone = span > 0 ? 88 : nvswitches.empty() ? 0 : 36;
    const double total = kTitle + height + nvlink_zone + 32.0 * static_cast<double>(nvswitches.size()) + 2 * kGap;
    std::string name = at(host).name, names;
    if (members.size() > 1) name = fmt::format("{} hosts like {}", members.size(), at(host).name);
    for (std::size_t i = 0; i < members.size() && i < 64; ++i) names += (i > 0 ? ", " : "") + at(members[i]).name;
    if (members.size() > 64) names += fmt::format(" and {} more", members.size() - 64);
    std::map<std::string, int> models;
    for (int gpu : gpus) ++models[at(gpu).model];
    std::set<std::string> racks;
    for (int member : members) {
      if (!at(member).rack.empty()) racks.insert(at(member).rack);
    }
    std::string second = at(host).model;
    for (const auto& [model, count] : models) {
      if (!model.empty()) second += fmt::format("{}{} x {}", second.empty() ? "" : ", ", count, model);
    }
    if (!racks.empty()) second += (second.empty() ? "" : ", ") + (racks.size() == 1 ? named_rack(*racks.begin()) : fmt::format("in {} racks", racks.size()));
    box(host, x, y, width, total, second, name, names);
    double at_x = x + kGap;
    for (int part : parts) {
      draw_tree(part, at_x, y + kTitle, below(part).empty() ? 0 : height);
      at_x += size_of(part).first + kGap;
    }
    double line_y = y + kTitle + height + nvlink_zone;
    for (int nvswitch : nvswitches) {
      box(nvswitch, x + kGap, line_y, width - 2 * kGap, 24, (at(nvswitch).nvls ? "sums in the switch, " : "") + rate_in(nvswitch));
      line_y += 32;
    }
    for (int gpu : gpus) nvlinks(gpu, y + kTitle + height);
    return total;
  }

  void line(const Link& of, const std::string& path, BytesPerSecond beta) {
    over_ += fmt::format("<path class=\"line {}\" stroke-width=\"{:.1f}\" d=\"{}\"/>\n", name_of(of.kind), width_of(name_of(of.kind), beta), path);
    const std::string source = printable(of.source) + (of.provenance == Provenance::kAssumed ? " (assumed)" : "") + ": " + rate(beta);
    used_.try_emplace({std::string(name_of(of.kind)), source}, beta);
  }

  void nvlinks(int gpu, double floor) {
    const Box& a = box_[static_cast<std::size_t>(gpu)];
    for (int index : out_[static_cast<std::size_t>(gpu)]) {
      const Link& one = link(index);
      if (!joins_gpus(one.kind)) continue;
      const Box& b = box_[static_cast<std::size_t>(one.to)];
      if (at(one.to).kind == DeviceKind::kGpu && one.to > gpu) {
        const double ax = a.x + a.width / 2 + 4.0 * (one.to % 8 - 4), bx = b.x + b.width / 2 + 4.0 * (gpu % 8 - 4);
        const double depth = floor + 24 + std::min(95.0, std::abs(bx - ax) * 0.13);
        line(one, fmt::format("M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", ax, a.y + a.height, ax, depth, bx, depth, bx, b.y + b.height), one.beta);
      } else if (at(one.to).kind == DeviceKind::kNvSwitch && b.width > 0) {
        line(one, fmt::format("M{0:.1f} {1:.1f} V{2:.1f}", a.x + a.width / 2, a.y + a.height, b.y), one.beta);
      }
    }
  }

  [[nodiscard]] std::vector<int> switches_of(int level) const {
    std::vector<int> switches;
    for (int device : devices_of(wiring_, DeviceKind::kSwitch)) {
      if (at(device).level == level && at(device).host < 0) switches.push_back(device);
    }
    return switches;
  }

  /// The switches of a level, spread over the width of the hosts.
  double draw_level(int level, double y, double wide) {
    const std::vector<int> switches = switches_of(level);
    if (switches.empty()) return y;
    if (switches.size() > kMostSwitches) {
      std::string names;
      for (std::size_t i = 0; i < switches.size() && i < 64; ++i) names += (i > 0 ? ", " : "") + at(switches[i]).name;
      box(switches[0], kMargin + wide / 2 - 2 * kSwitchWidth, y, 4 * kSwitchWidth, 40, level == 0 ? "leaves" : level == 1 ? "spines" : "core", fmt::format("{} switches: {} to {}", switches.size(), at(switches[0]).name, at(switches.back()).name), names);
      for (int device : switches) box_[static_cast<std::size_t>(device)] = box_[static_cast<std::size_t>(switches[0])];
    } else {
      const double each = std::max(wide / static_cast<double>(switches.size()), kSwitchWidth + 2 * kGap);
      for (std::size_t i = 0; i < switches.size(); ++i) {
        const double x = kMargin + (static_cast<double>(i) + 0.5) * each - kSwitchWidth / 2;
        box(switches[i], x, y, kSwitchWidth, 40, at(switches[i]).rack.empty() ? (level == 0 ? "leaf" : level == 1 ? "spine" : "core") : named_rack(at(switches[i]).rack));
      }
    }
    return y + kLevel;
  }

  /// Lines that would lie upon each other are one, as wide as one of them.
  void network_lines() {
    std::set<std::string> drawn;
    for (const Link& one : wiring_.links) {
      if (at(one.to).host >= 0 || at(one.to).kind == DeviceKind::kNvSwitch) {
        if (at(one.to).kind == DeviceKind::kNvSwitch && at(one.to).host < 0 && box_[static_cast<std::size_t>(one.from)].width > 0 && at(one.from).host >= 0) {
          const Box &a = box_[static_cast<std::size_t>(one.from)], &b = box_[static_cast<std::size_t>(one.to)];
          line(one, fmt::format("M{0:.1f} {1:.1f} V{2:.1f}", a.x + a.width / 2, a.y + a.height, b.y), one.beta);
        }
        continue;
      }
      if (at(one.from).host < 0 && at(one.from).level >= at(one.to).level) continue;
      Box from = box_[static_cast<std::size_t>(one.from)];
      const auto kind = kind_of_host_.find(at(one.from).host);
      if (from.width <= 0) {  // one of the hosts that are drawn by another
        if (kind == kind_of_host_.end()) continue;
        from = box_[static_cast<std::size_t>(kinds_[static_cast<std::size_t>(kind->second)].first)];
        const std::vector<int>& drawn_one = by_host_[static_cast<std::size_t>(at(kinds_[static_cast<std::size_t>(kind->second)].first).host)];
        const auto twin = std::find_if(drawn_one.begin(), drawn_one.end(), [&](int device) { return at(device).name == at(one.from).name; });
        if (twin != drawn_one.end() && at(one.from).kind != DeviceKind::kHost) from = box_[static_cast<std::size_t>(*twin)];
      }
      const Box& to = box_[static_cast<std::size_t>(one.to)];
      const double ax = from.x + from.width / 2, bx = to.x + to.width / 2, by = to.y + to.height;
      // Straight out of the host, where names of boxes are, and bent above it; out of lower rows first to the lane beside those above.
      const double above = at(one.from).host >= 0 ? std::min(from.y, hosts_top_) : from.y;
      const double bend = (above - by) / 2;
      const std::size_t row = kind == kind_of_host_.end() ? 0 : row_of_kind_[static_cast<std::size_t>(kind->second)];
      const double lane = row == 0 ? ax : kMargin + kLane * static_cast<double>(row - 1);
      const std::string way = row == 0 ? fmt::format("V{:.1f}", above) : fmt::format("V{:.1f} H{:.1f} V{:.1f}", rows_[row] - 2 * kGap, lane, above);
      const std::string path = fmt::format("M{:.1f} {:.1f} {} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", ax, from.y, way, lane, above - bend, bx, by + bend, bx, by);
      if (drawn.insert(path + std::string(name_of(one.kind))).second) line(one, path, one.beta);
    }
  }

  double legend(double y) {
    boxes_ += over_;
    if (!used_.empty()) text(kMargin, y + 12, "small", "per direction:");
    for (const auto& [what, beta] : used_) {
      const auto& [kind, source] = what;
      y += 18;
      boxes_ += fmt::format("<path class=\"line {}\" stroke-width=\"{:.1f}\" d=\"M{:.1f} {:.1f} h40\"/>\n", kind, width_of(kind, beta), kMargin + 4, y + 8);
      text(kMargin + 54, y + 12, "", escaped(source));
    }
    y += 18;
    text(kMargin, y + 12, "small", "a box's figure is its way up: PCIe, sockets or shared memory, per direction");
    right_ = std::max(right_, 460.0);
    return y + 16;
  }

  const Wiring& wiring_;
  std::vector<std::vector<int>> out_;
  std::vector<std::vector<int>> by_host_;
  std::vector<int> up_;  // the link that leads to each device from what it hangs on; -1 of hosts and of what hangs on nothing
  std::vector<std::vector<int>> below_;
  std::vector<Box> box_;
  std::vector<std::pair<int, std::vector<int>>> kinds_;  // the host that is drawn, and all that are like it
  std::map<int, int> kind_of_host_;
  std::map<std::pair<std::string, std::string>, BytesPerSecond> used_;  // kinds of lines, as the legend says them
  std::vector<double> rows_;              // where each row of hosts begins
  std::vector<std::size_t> row_of_kind_;
  std::string boxes_, over_, texts_;  // names lie above lines, lines above boxes
  double right_ = 0, hosts_top_ = 0;
};

}  // namespace

std::string write_svg(const Wiring& wiring) { return Picture(wiring).draw(); }

}  // namespace wirewise
