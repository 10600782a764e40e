// Finding and loading libwirewise_cuda.so, the part of Wirewise that needs CUDA and NCCL; and saying why a device can't be used, with
// what to do about it. A program that asks for no device never loads it, nor the gigabytes that it links.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/accelerator.h"

namespace wirewise {

/// How tensors of a device travel between ranks: by NCCL, a device each; or through pinned host memory and our own collectives, several
/// ranks a device where need be.
enum class CudaComm : std::uint8_t { kNccl, kStaged };
[[nodiscard]] std::string_view name_of(CudaComm comm) noexcept;
/// "nccl" or "staged"; `text` empty: WIREWISE_CUDA_COMM, else NCCL. Throws bad input naming `source` ("--comm").
[[nodiscard]] CudaComm choose_cuda_comm(const std::string& text, const std::string& source);

/// What CUDA says of this machine. Versions are CUDA's: 13000 is 13.0.
struct CudaStatus {
  int driver_version = 0;    // the newest CUDA that the driver serves; 0: there is no driver
  int runtime_version = 0;   // what libtorch was built for
  int nccl_version = 0;      // 22809 is 2.28.9
  int devices = 0;
  std::string failure;       // what CUDA said when it was asked for its devices; empty: nothing wrong
};

class CudaLibrary {
 public:
  virtual ~CudaLibrary() = default;
  [[nodiscard]] virtual CudaStatus status() = 0;
  /// One object a device and process. Throws bad input when there is no such device.
  [[nodiscard]] virtual std::shared_ptr<Accelerator> device(int index) = 0;
};

/// Changes whenever an interface changes that crosses the library's border: accelerator.h, communicator.h, operation.h, store.h, error.h.
inline constexpr std::uint32_t kCudaLibraryAbi = 2;
/// The entry point's name and type. Null when the library was built of another Wirewise or interface; `theirs` then says which.
inline constexpr const char* kCudaLibraryEntry = "wirewise_cuda_library";
using CudaLibraryEntry = CudaLibrary* (*)(std::uint32_t abi, const char* version, const char** theirs);

/// Where the library is looked for: WIREWISE_CUDA_LIBRARY where set, else the folder of the program or module that holds this code, and
/// ../lib beside that.
[[nodiscard]] std::vector<std::filesystem::path> cuda_library_places();

/// Loads it, once a process. Throws bad input: absent (naming the places), of another version, or not loadable.
[[nodiscard]] CudaLibrary& load_cuda_library();

/// Why `local_ranks` ranks on this host can't use it, or nothing.
[[nodiscard]] std::optional<Error> cuda_refusal(const CudaStatus& status, int local_ranks, CudaComm comm);

/// The device of local rank `local_rank`: with NCCL its own, staged one in turn. Loads the library; throws bad input with the reason.
[[nodiscard]] std::shared_ptr<Accelerator> open_cuda_device(int local_rank, int local_ranks, CudaComm comm);

/// A communicator of all ranks for the memory of `device`. Collective over the store's ranks; one rank needs no store. Throws bad input, listing
/// them, where NCCL is to join ranks of one host that have the same device.
[[nodiscard]] std::unique_ptr<Communicator> join_device(const std::shared_ptr<Accelerator>& device, CudaComm comm, std::shared_ptr<Store> store, int rank,
                                                        int size, CommunicatorOptions options);

}  // namespace wirewise
