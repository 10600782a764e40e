#include "wirewise/wiring/nccl_words.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>
#include <vector>

#include "wirewise/base/text.h"
#include "wirewise/wiring/link_classes.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostCpus = 1 << 16;

std::string list_of(const std::vector<bool>& cpus) {
  std::string list;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    if (!cpus[i]) continue;
    std::size_t end = i;
    while (end + 1 < cpus.size() && cpus[end + 1]) ++end;
    list += (list.empty() ? "" : ",") + std::to_string(i) + (end > i ? "-" + std::to_string(end) : "");
    i = end;
  }
  return list;
}

}  // namespace

std::string cpus_of_mask(std::string_view mask, int offset) {
  const std::vector<std::string> groups = split(mask, ',');
  if (groups.size() * 32 > kMostCpus || offset < 0 || static_cast<std::size_t>(offset) > kMostCpus) return {};
  std::vector<bool> cpus(groups.size() * 32 + static_cast<std::size_t>(offset));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string& group = groups[groups.size() - 1 - g];
    std::uint32_t bits = 0;
    const auto [end, error] = std::from_chars(group.data(), group.data() + group.size(), bits, 16);
    if (group.empty() || group.size() > 8 || error != std::errc() || end != group.data() + group.size()) return {};
    for (std::size_t bit = 0; bit < 32; ++bit) cpus[static_cast<std::size_t>(offset) + g * 32 + bit] = ((bits >> bit) & 1U) != 0;
  }
  return list_of(cpus);
}

std::string mask_of_cpus(std::string_view cpus) {
  std::vector<std::uint32_t> words;
  for (const std::string& range : split(cpus, ',')) {
    const std::vector<std::string> ends = split(range, '-');
    if (ends.empty() || ends.size() > 2) return {};
    const auto first = parse_integer(ends.front()), last = parse_integer(ends.back());
    if (!first || !last || *first < 0 || *last < *first || *last >= static_cast<long long>(kMostCpus)) return {};
    words.resize(std::max(words.size(), static_cast<std::size_t>(*last) / 32 + 1));
    for (auto cpu = static_cast<std::size_t>(*first); cpu <= static_cast<std::size_t>(*last); ++cpu) words[cpu / 32] |= std::uint32_t{1} << (cpu % 32);
  }
  std::string mask;
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    char digits[9];
    for (int i = 0; i < 8; ++i) digits[i] = "0123456789abcdef"[(*word >> (28 - 4 * i)) & 0xfU];
    mask += (mask.empty() ? "" : ",") + std::string(digits, 8);
  }
  return mask;
}

std::string_view sockets_class(const CpuKind& cpu) noexcept {
  if (cpu.arch != "x86_64") return {};
  if (cpu.vendor == "GenuineIntel" && cpu.family == 6) {
    if (cpu.model >= 0x8f) return "Intel UPI, Sapphire Rapids";
    if (cpu.model >= 0x55) return "Intel UPI, Skylake";
    return cpu.model >= 0 ? "Intel QPI, Broadwell" : "";
  }
  if (cpu.vendor == "AuthenticAMD") {
    // The family as cpuid puts it together, and as NCCL before 2.28 did (0x8f, 0xaf, 0xbf of 17h, 19h, 1Ah).
    if (cpu.family == 0x17 || cpu.family == 0x8f) return "AMD xGMI, Zen 2";
    if (cpu.family == 0x19 || cpu.family == 0xaf || cpu.family == 0x1a || cpu.family == 0xbf) return "AMD xGMI, Zen 3/4";
  }
  return {};
}

std::optional<CpuKind> cpu_of_sockets(std::string_view link_class) {
  if (link_class == "Intel QPI, Broadwell") return CpuKind{"x86_64", "GenuineIntel", 6, 79};
  if (link_class == "Intel UPI, Skylake") return CpuKind{"x86_64", "GenuineIntel", 6, 85};
  if (link_class == "Intel UPI, Sapphire Rapids") return CpuKind{"x86_64", "GenuineIntel", 6, 143};
  if (link_class == "AMD xGMI, Zen 2") return CpuKind{"x86_64", "AuthenticAMD", 23, 49};
  if (link_class == "AMD xGMI, Zen 3/4") return CpuKind{"x86_64", "AuthenticAMD", 25, 17};
  if (link_class == "NVLink-C2C") return CpuKind{"arm64", "", -1, -1};  // Grace
  return std::nullopt;
}

std::string describe(const CpuKind& cpu) {
  if (cpu.arch.empty() && cpu.vendor.empty()) return {};
  std::string text = cpu.arch.empty() ? cpu.vendor : cpu.vendor.empty() ? cpu.arch : cpu.arch + " " + cpu.vendor;
  if (cpu.family >= 0) text += ", family " + std::to_string(cpu.family);
  if (cpu.model >= 0) text += ", model " + std::to_string(cpu.model);
  return text;
}

std::optional<CpuKind> cpu_kind(std::string_view described) {
  const std::vector<std::string> parts = split(described, ',');
  if (parts.empty()) return std::nullopt;
  const std::vector<std::string> words = split(parts.front(), ' ');
  const bool lone = words.size() == 1 && (words[0] == "x86_64" || words[0] == "arm64" || words[0] == "ppc64");  // an architecture whose vendor isn't told
  if (words.size() != 2 && !lone) return std::nullopt;
  CpuKind cpu{words[0], lone ? "" : words[1]};
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::vector<std::string> pair = split(parts[i], ' ');  // "", "family", "6"
    const auto number = pair.size() == 3 ? parse_integer(pair[2]) : std::nullopt;
    if (!number || *number < 0 || *number > 0xffff) return std::nullopt;
    if (pair[1] == "family") cpu.family = static_cast<int>(*number);
    else if (pair[1] == "model") cpu.model = static_cast<int>(*number);
    else return std::nullopt;
  }
  return cpu;
}

int pcie_generation(std::string_view speed) noexcept {
  const std::size_t unit = speed.find(" GT/s");
  if (unit == std::string_view::npos) return 0;
  std::string_view figure = speed.substr(0, unit);
  if (figure.size() > 2 && figure.substr(figure.size() - 2) == ".0") figure.remove_suffix(2);
  constexpr std::string_view kRates[] = {"2.5", "5", "8", "16", "32", "64"};
  const auto found = std::find(std::begin(kRates), std::end(kRates), figure);
  return found == std::end(kRates) ? 0 : static_cast<int>(found - std::begin(kRates)) + 1;
}

std::string_view pcie_speed(int generation) noexcept {
  constexpr std::string_view kSpeeds[] = {"", "2.5 GT/s PCIe", "5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe"};
  return generation >= 1 && generation <= 6 ? kSpeeds[generation] : kSpeeds[0];
}

int compute_capability_of(std::string_view model) noexcept {
  if (const std::size_t at = model.find("sm_"); at != std::string_view::npos) {
    int number = 0;
    const auto [end, error] = std::from_chars(model.data() + at + 3, model.data() + model.size(), number);
    return error == std::errc() && number > 0 && number < 1000 ? number : 0;
  }
  // The longer of names that begin alike come first.
  constexpr std::pair<std::string_view, int> kKnown[] = {{"GB300", 103}, {"B300", 103}, {"GB200", 100}, {"B200", 100}, {"B100", 100}, {"GH200", 90}, {"H200", 90}, {"H100", 90},
                                                         {"H800", 90}, {"H20", 90}, {"A100", 80}, {"A800", 80}, {"A30", 80}, {"V100", 70}, {"P100", 60}, {"L40", 89}, {"L20", 89},
                                                         {"L4", 89}, {"RTX 6000 Ada", 89}, {"RTX 40", 89}, {"RTX A", 86}, {"A40", 86}, {"A10", 86}, {"A16", 86}, {"RTX 30", 86},
                                                         {"RTX 20", 75}, {"T4", 75}, {"RTX 50", 120}, {"RTX PRO", 120}};
  for (const auto& [name, capability] : kKnown) {
    if (model.find(name) != std::string_view::npos) return capability;
  }
  return 0;
}

int nvlink_generation(int compute_capability) noexcept {
  if (compute_capability >= 100 && compute_capability < 120) return 5;
  if (compute_capability >= 90 && compute_capability < 100) return 4;
  if (compute_capability >= 80 && compute_capability < 90) return 3;
  if (compute_capability >= 70 && compute_capability < 80) return 2;
  return compute_capability >= 60 && compute_capability < 70 ? 1 : 0;
}

Link nvlinks_of(int compute_capability, int count) {
  Link link = nvlink_link(nvlink_generation(compute_capability), count, Provenance::kDriver);
  if (compute_capability == 86) {  // GA102's links are slower: 112.5 GB/s both ways over four; NCCL takes 12 of each
    link.spec = 14.0625e9 * count;
    link.beta = 12e9 * count;
    link.source = std::to_string(count) + " x NVLink 3 of GA102";
  }
  return link;
}

std::string gfx_name(std::string_view gcn) {
  if (gcn == "910") return "gfx90a";
  const bool number = !gcn.empty() && std::all_of(gcn.begin(), gcn.end(), [](char c) { return c >= '0' && c <= '9'; });
  return number ? "gfx" + std::string(gcn) : std::string(gcn);
}

Link xgmi_of(std::string_view gfx, int count) {
  if (gfx.substr(0, 5) == "gfx94" || gfx.substr(0, 5) == "gfx95") return make_link(link_class("xGMI, MI300"), count, Provenance::kDriver);
  if (gfx == "gfx90a") return make_link(link_class("xGMI, MI200"), count, Provenance::kDriver);
  const bool known = gfx == "gfx906" || gfx == "gfx908";
  return make_link(link_class("xGMI, MI100"), count, known ? Provenance::kDriver : Provenance::kAssumed);
}

}  // namespace wirewise
