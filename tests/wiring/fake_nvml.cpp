// A management library of a machine with three GPUs, as the tests' machine has them: two joined by four NVLinks, the third by none.
#include <cstdio>
#include <cstring>

extern "C" {
struct Pci {
  char legacy[16];
  unsigned domain, bus, device, model, subsystem;
  char address[32];
};
static const char* const kAddress[] = {"00000000:3D:00.0", "00000000:3E:00.0", "00000000:B1:00.0"};
static unsigned index_of(void* gpu) { return static_cast<unsigned>(reinterpret_cast<unsigned long>(gpu)) - 1; }
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "GPU is lost"; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return std::snprintf(text, size, "570.86.15") > 0 ? 0 : 1; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 4, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) {
  if (index == 3) return 15;
  *gpu = reinterpret_cast<void*>(static_cast<unsigned long>(index) + 1);
  return 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) { return std::snprintf(text, size, "NVIDIA A100-SXM4-40GB") > 0 ? 0 : 1; }
int nvmlDeviceGetUUID(void* gpu, char* text, unsigned size) { return std::snprintf(text, size, "GPU-%u", index_of(gpu)) > 0 ? 0 : 1; }
int nvmlDeviceGetPciInfo_v3(void* gpu, Pci* pci) { return std::strcpy(pci->address, kAddress[index_of(gpu)]) != nullptr ? 0 : 1; }
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) { return memory[0] = 42949672960ull, memory[1] = memory[2] = 0, 0; }
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) { return *major = 8, *minor = 0, 0; }
int nvmlDeviceGetNvLinkState(void* gpu, unsigned link, int* state) {
  if (index_of(gpu) > 1) return 3;
  if (link >= 5) return 2;
  return *state = link < 4, 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* gpu, unsigned, Pci* pci) { return std::strcpy(pci->address, kAddress[1 - index_of(gpu)]) != nullptr ? 0 : 1; }
}
