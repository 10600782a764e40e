// The GPUs' driver, asked through its management library where there is one: it is loaded, never linked.
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "wirewise/wiring/machine.h"

namespace wirewise {
namespace {

constexpr int kMostLinks = 36;
constexpr unsigned kMostGpus = 256;

// The library's binary interface, as much of it as is used.
using Result = int;  // 0: success, 2: invalid argument, 3: not supported
using Gpu = struct NvmlDevice*;
struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, model, subsystem;
  char address[32];
};
struct Memory {
  unsigned long long total, free, used;
};

struct Functions {
  Result (*init)() = nullptr;
  Result (*shutdown)() = nullptr;
  const char* (*error_string)(Result) = nullptr;
  Result (*driver_version)(char*, unsigned) = nullptr;
  Result (*count)(unsigned*) = nullptr;
  Result (*by_index)(unsigned, Gpu*) = nullptr;
  Result (*name)(Gpu, char*, unsigned) = nullptr;
  Result (*uuid)(Gpu, char*, unsigned) = nullptr;
  Result (*pci)(Gpu, PciInfo*) = nullptr;
  Result (*memory)(Gpu, Memory*) = nullptr;
  // These may be missing from old libraries.
  Result (*compute_capability)(Gpu, int*, int*) = nullptr;
  Result (*mig_mode)(Gpu, unsigned*, unsigned*) = nullptr;
  Result (*generation)(Gpu, unsigned*) = nullptr;
  Result (*most_generation)(Gpu, unsigned*) = nullptr;
  Result (*lanes)(Gpu, unsigned*) = nullptr;
  Result (*most_lanes)(Gpu, unsigned*) = nullptr;
  Result (*link_state)(Gpu, unsigned, int*) = nullptr;
  Result (*link_remote)(Gpu, unsigned, PciInfo*) = nullptr;
  Result (*link_remote_type)(Gpu, unsigned, int*) = nullptr;
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

/// The first function that is missing; null: all that are needed are there.
const char* load(void* library, Functions& f) {
  if (!find(library, "nvmlInit_v2", f.init)) return "nvmlInit_v2";
  if (!find(library, "nvmlShutdown", f.shutdown)) return "nvmlShutdown";
  if (!find(library, "nvmlErrorString", f.error_string)) return "nvmlErrorString";
  if (!find(library, "nvmlSystemGetDriverVersion", f.driver_version)) return "nvmlSystemGetDriverVersion";
  if (!find(library, "nvmlDeviceGetCount_v2", f.count)) return "nvmlDeviceGetCount_v2";
  if (!find(library, "nvmlDeviceGetHandleByIndex_v2", f.by_index)) return "nvmlDeviceGetHandleByIndex_v2";
  if (!find(library, "nvmlDeviceGetName", f.name)) return "nvmlDeviceGetName";
  if (!find(library, "nvmlDeviceGetUUID", f.uuid)) return "nvmlDeviceGetUUID";
  if (!find(library, "nvmlDeviceGetPciInfo_v3", f.pci)) return "nvmlDeviceGetPciInfo_v3";
  if (!find(library, "nvmlDeviceGetMemoryInfo", f.memory)) return "nvmlDeviceGetMemoryInfo";
  find(library, "nvmlDeviceGetCudaComputeCapability", f.compute_capability);
  find(library, "nvmlDeviceGetMigMode", f.mig_mode);
  find(library, "nvmlDeviceGetCurrPcieLinkGeneration", f.generation);
  find(library, "nvmlDeviceGetMaxPcieLinkGeneration", f.most_generation);
  find(library, "nvmlDeviceGetCurrPcieLinkWidth", f.lanes);
  find(library, "nvmlDeviceGetMaxPcieLinkWidth", f.most_lanes);
  find(library, "nvmlDeviceGetNvLinkState", f.link_state);
  find(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", f.link_remote);
  find(library, "nvmlDeviceGetNvLinkRemoteDeviceType", f.link_remote_type);
  return nullptr;
}

std::string text_of(Result (*function)(Gpu, char*, unsigned), Gpu gpu) {
  std::array<char, 128> text{};
  return function(gpu, text.data(), text.size() - 1) == 0 ? text.data() : std::string();
}

int number_of(Result (*function)(Gpu, unsigned*), Gpu gpu) {
  unsigned value = 0;
  return function != nullptr && function(gpu, &value) == 0 && value <= 64 ? static_cast<int>(value) : 0;
}

std::string address_of(PciInfo& info) {
  info.address[sizeof info.address - 1] = 0;
  return pci_address(info.address);
}

std::vector<NvmlLink> links_of(const Functions& f, Gpu gpu) {
  std::vector<NvmlLink> links;
  for (unsigned i = 0; f.link_state != nullptr && i < kMostLinks; ++i) {
    int state = 0;
    const Result result = f.link_state(gpu, i, &state);
    if (result != 0) break;  // no such link, or no NVLink at all
    NvmlLink link;
    link.number = static_cast<int>(i);
    link.active = state == 1;
    int type = 255;
    if (link.active && f.link_remote_type != nullptr && f.link_remote_type(gpu, i, &type) == 0) link.to_switch = type == 2;
    PciInfo info{};
    if (link.active && f.link_remote != nullptr && f.link_remote(gpu, i, &info) == 0) link.remote = address_of(info);
    links.push_back(std::move(link));
  }
  return links;
}

NvmlGpu gpu_of(const Functions& f, unsigned index) {
  NvmlGpu facts;
  facts.index = static_cast<int>(index);
  Gpu gpu = nullptr;
  if (const Result result = f.by_index(index, &gpu); result != 0) {
    const char* const words = f.error_string(result);
    facts.failure = words == nullptr ? "error " + std::to_string(result) : words;
    return facts;
  }
  facts.name = text_of(f.name, gpu);
  facts.uuid = text_of(f.uuid, gpu);
  PciInfo info{};
  if (f.pci(gpu, &info) == 0) facts.pci = address_of(info);
  Memory memory{};
  if (f.memory(gpu, &memory) == 0) facts.memory = memory.total;
  int minor = 0;
  if (f.compute_capability != nullptr && f.compute_capability(gpu, &facts.compute_major, &minor) != 0) facts.compute_major = 0;
  unsigned now = 0, pending = 0;
  facts.mig = f.mig_mode != nullptr && f.mig_mode(gpu, &now, &pending) == 0 && now == 1;
  facts.generation = number_of(f.generation, gpu);
  facts.most_generation = number_of(f.most_generation, gpu);
  facts.lanes = number_of(f.lanes, gpu);
  facts.most_lanes = number_of(f.most_lanes, gpu);
  facts.nvlinks = links_of(f, gpu);
  return facts;
}

}  // namespace

NvmlFacts read_nvml(const std::string& library) {
  NvmlFacts facts;
  const char* const variable = std::getenv("WIREWISE_NVML");
  const std::string name = !library.empty() ? library : variable != nullptr && *variable != 0 ? variable : "libnvidia-ml.so.1";
  void* const opened = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (opened == nullptr) {
    facts.absence = "no NVML: " + name + " can't be loaded, so there is no NVIDIA driver here or it is hidden";
    return facts;
  }
  const std::unique_ptr<void, int (*)(void*)> owner(opened, &::dlclose);
  Functions f;
  if (const char* const missing = load(opened, f)) {
    facts.absence = "no NVML: " + name + " has no function " + missing;
    return facts;
  }
  if (const Result result = f.init(); result != 0) {
    const char* const words = f.error_string(result);
    facts.absence = "no NVML: " + name + " doesn't start: " + (words == nullptr ? "error " + std::to_string(result) : words);
    return facts;
  }
  facts.present = true;
  std::array<char, 128> version{};
  if (f.driver_version(version.data(), version.size() - 1) == 0) facts.driver = version.data();
  unsigned count = 0;
  if (f.count(&count) != 0) count = 0;
  for (unsigned i = 0; i < count && i < kMostGpus; ++i) facts.gpus.push_back(gpu_of(f, i));
  f.shutdown();
  return facts;
}

}  // namespace wirewise
