// The words that NCCL's topology files use for CPUs, PCIe and GPUs, and what they mean here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "wirewise/wiring/wiring.h"

namespace wirewise {

/// "ff,ffff0000" as Linux lists CPUs: "16-39". Groups of 32 CPUs, the highest first. Empty: no such mask, or no CPU in it.
[[nodiscard]] std::string cpus_of_mask(std::string_view mask, int offset = 0);
/// The other way round; empty when the list isn't one.
[[nodiscard]] std::string mask_of_cpus(std::string_view cpus);

struct CpuKind {
  std::string arch, vendor;  // "x86_64", "GenuineIntel"; empty: not known
  int family = -1, model = -1;
};
/// The name of the link class between its sockets; empty where none is known.
[[nodiscard]] std::string_view sockets_class(const CpuKind& cpu) noexcept;
/// A CPU whose sockets are joined by a link class; nothing where none is known.
[[nodiscard]] std::optional<CpuKind> cpu_of_sockets(std::string_view link_class);
/// "x86_64 GenuineIntel, family 6, model 143"; empty where nothing is known.
[[nodiscard]] std::string describe(const CpuKind& cpu);
/// The other way round; empty when it is no such text.
[[nodiscard]] std::optional<CpuKind> cpu_kind(std::string_view described);

/// 4 of "16.0 GT/s PCIe"; 0 where it isn't known.
[[nodiscard]] int pcie_generation(std::string_view speed) noexcept;
/// "16.0 GT/s PCIe" of 4; empty where there is none.
[[nodiscard]] std::string_view pcie_speed(int generation) noexcept;

/// 80 of "NVIDIA A100-SXM4-40GB", and of "NVIDIA sm_80"; 0 where it isn't known.
[[nodiscard]] int compute_capability_of(std::string_view model) noexcept;
/// NVLink's generation of a GPU's compute capability (80: 3); 0 where it isn't known or has none.
[[nodiscard]] int nvlink_generation(int compute_capability) noexcept;
/// `count` NVLinks of a GPU with this compute capability.
[[nodiscard]] Link nvlinks_of(int compute_capability, int count);

/// AMD's name of an architecture as RCCL writes it: "gfx90a" of "910".
[[nodiscard]] std::string gfx_name(std::string_view gcn);
/// `count` xGMI links between GPUs of an architecture.
[[nodiscard]] Link xgmi_of(std::string_view gfx, int count);

}  // namespace wirewise
