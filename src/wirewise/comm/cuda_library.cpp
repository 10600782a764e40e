#include "wirewise/comm/cuda_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "wirewise/base/text.h"
#include "wirewise/comm/cards.h"
#include "wirewise/comm/staged_communicator.h"

namespace wirewise {
namespace {

constexpr const char* kFile = "libwirewise_cuda.so";

/// The file that this code was loaded from: the program, or a module of another program.
std::filesystem::path own_file() {
  Dl_info info{};
  std::error_code error;
  if (::dladdr(reinterpret_cast<const void*>(&cuda_library_places), &info) != 0 && info.dli_fname != nullptr) {
    // A program's own name is as it was called, which need not be a path.
    if (const auto file = std::filesystem::canonical(info.dli_fname, error); !error) return file;
  }
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

/// 13000 is 13.0.
std::string cuda_version(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

std::string listed(const std::vector<std::filesystem::path>& places) {
  std::string text;
  for (const auto& place : places) text += (text.empty() ? "" : ", ") + printable(place.string());
  return text;
}

CudaLibrary& load() {
  const std::vector<std::filesystem::path> places = cuda_library_places();
  const auto found = std::find_if(places.begin(), places.end(), [](const auto& place) {
    std::error_code error;
    return std::filesystem::exists(place, error);
  });
  if (found == places.end()) {
    throw bad_input(std::string(kFile) + ", which CUDA devices need, is missing at " + listed(places) + ".",
                    "Build with a torch wheel that has CUDA (./run build says whether it does), or name the file in WIREWISE_CUDA_LIBRARY; "
                    "else use --device cpu.");
  }
  void* library = ::dlopen(found->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    throw bad_input(printable(found->string()) + " can't be loaded: " + printable(reason != nullptr ? reason : "no reason given") + ".",
                    "Install the torch wheel that Wirewise was built with, with its CUDA packages; or use --device cpu.");
  }
  const auto entry = reinterpret_cast<CudaLibraryEntry>(::dlsym(library, kCudaLibraryEntry));
  const char* theirs = "no entry point";
  CudaLibrary* made = entry != nullptr ? entry(kCudaLibraryAbi, WIREWISE_VERSION, &theirs) : nullptr;
  if (made == nullptr) {
    const std::string other = theirs;
    ::dlclose(library);
    throw bad_input(printable(found->string()) + " belongs to another Wirewise: it is " + printable(other) + ", this is " + WIREWISE_VERSION +
                        " with interface " + std::to_string(kCudaLibraryAbi) + ".",
                    "Build both at once (./run build), or use --device cpu.");
  }
  return *made;  // never unloaded: CUDA leaves threads and handlers behind
}

}  // namespace

std::string_view name_of(CudaComm comm) noexcept { return comm == CudaComm::kNccl ? "nccl" : "staged"; }

CudaComm choose_cuda_comm(const std::string& text, const std::string& source) {
  const char* variable = std::getenv("WIREWISE_CUDA_COMM");
  const bool from_environment = text.empty() && variable != nullptr && *variable != '\0';
  const std::string value = from_environment ? variable : text;
  if (value.empty() || value == "nccl") return CudaComm::kNccl;
  if (value == "staged") return CudaComm::kStaged;
  throw bad_input((from_environment ? "WIREWISE_CUDA_COMM" : source) + " is " + printable(value) + ".",
                  "Use nccl (a device a rank) or staged (through host memory; ranks may share a device).");
}

std::vector<std::filesystem::path> cuda_library_places() {
  if (const char* named = std::getenv("WIREWISE_CUDA_LIBRARY"); named != nullptr && *named != '\0') return {named};
  const std::filesystem::path folder = own_file().parent_path();
  return {folder / kFile, folder.parent_path() / "lib" / kFile};
}

CudaLibrary& load_cuda_library() {
  // CUDA itself is one a process, and so is this; a failed try is made again by the next call.
  static std::mutex mutex;
  static CudaLibrary* loaded = nullptr;
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) loaded = &load();
  return *loaded;
}

std::optional<Error> cuda_refusal(const CudaStatus& status, int local_ranks, CudaComm comm) {
  const std::string or_cpu = " Or use --device cpu.";
  if (status.driver_version == 0) {
    return bad_input("CUDA found no NVIDIA driver on this host (libcuda.so.1 is absent).",
                     "Install the driver, and in a container pass the devices through (--gpus all)." + or_cpu);
  }
  if (status.driver_version < status.runtime_version && status.devices == 0) {
    return bad_input("the NVIDIA driver is too old: it serves CUDA " + cuda_version(status.driver_version) + ", and this libtorch was built for CUDA " +
                         cuda_version(status.runtime_version) + ".",
                     "Install a newer driver, or a torch wheel for the driver's CUDA." + or_cpu);
  }
  if (!status.failure.empty()) {
    return bad_input("CUDA can't list its devices: " + printable(status.failure) + ".", "nvidia-smi may say more." + or_cpu);
  }
  if (status.devices == 0) {
    return bad_input("CUDA found no device on this host.",
                     "Check nvidia-smi and CUDA_VISIBLE_DEVICES; in a container pass the devices through (--gpus all)." + or_cpu);
  }
  if (comm == CudaComm::kNccl && local_ranks > status.devices) {
    return bad_input(std::to_string(local_ranks) + " ranks on this host have " + std::to_string(status.devices) + " CUDA device" +
                         (status.devices == 1 ? "" : "s") + ", and NCCL needs one a rank.",
                     "Start " + std::to_string(status.devices) + ", or let ranks share devices with --comm staged (or WIREWISE_CUDA_COMM=staged).");
  }
  return std::nullopt;
}

std::shared_ptr<Accelerator> open_cuda_device(int local_rank, int local_ranks, CudaComm comm) {
  try {
    CudaLibrary& library = load_cuda_library();
    const CudaStatus status = library.status();
    if (const auto refusal = cuda_refusal(status, local_ranks, comm)) throw *refusal;
    return library.device(local_rank % status.devices);
  } catch (const Error& error) {
    throw Error(error.kind(), "--device cuda: " + error.sentence(), error.remedy());
  }
}

namespace {

/// NCCL would say that a bus number is there twice, or wait for ever: here all ranks are told, with hosts and processes.
void require_own_devices(const Accelerator& device, const std::shared_ptr<Store>& store, int rank, int size, const CommunicatorOptions& options) {
  comm::Card card = comm::make_card(size);
  card.device = device.identity();
  PrefixStore own(options.name + "/devices/", store);
  (void)comm::exchange_cards(own, rank, std::move(card), options.timeout, options.name);
}

}  // namespace

std::unique_ptr<Communicator> join_device(const std::shared_ptr<Accelerator>& device, CudaComm comm, std::shared_ptr<Store> store, int rank, int size,
                                          CommunicatorOptions options) {
  if (comm == CudaComm::kNccl) {
    if (size > 1) require_own_devices(*device, store, rank, size, options);
    return device->make_communicator(std::move(store), rank, size, std::move(options));
  }
  auto host = size == 1 ? std::move(make_thread_communicators(1, options).front()) : make_communicator(std::move(store), rank, size, options);
  return make_staged_communicator(std::move(host), device, std::move(options));
}

}  // namespace wirewise
