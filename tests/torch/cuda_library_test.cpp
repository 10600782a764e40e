// The CUDA library as a program without a device meets it: its entry point, and refusals that say why and what to do. On a machine with a
// device ./run gpu-check goes on from here.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "wirewise/comm/cuda_library.h"

namespace wirewise {
namespace {

const std::filesystem::path kLibrary = std::filesystem::path(WIREWISE_BUILD_DIR) / "libwirewise_cuda.so";

/// An environment variable for the life of a test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string refusal(const CudaStatus& status, int ranks, CudaComm comm) {
  const auto error = cuda_refusal(status, ranks, comm);
  if (!error) return {};
  EXPECT_EQ(error->kind(), ErrorKind::kBadInput);
  EXPECT_FALSE(error->remedy().empty());
  return error->what();
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(CudaRefusal, NamesTheReason) {
  CudaStatus status;
  status.runtime_version = 13000;
  EXPECT_PRED2(says, refusal(status, 1, CudaComm::kNccl), "no NVIDIA driver");
  status.driver_version = 12040;
  status.failure = "CUDA driver version is insufficient for CUDA runtime version";
  EXPECT_PRED2(says, refusal(status, 1, CudaComm::kNccl), "serves CUDA 12.4, and this libtorch was built for CUDA 13.0");
  status.driver_version = 13000;
  status.failure = "system not yet initialized";
  EXPECT_PRED2(says, refusal(status, 1, CudaComm::kNccl), "system not yet initialized");
  status.failure.clear();
  EXPECT_PRED2(says, refusal(status, 1, CudaComm::kNccl), "found no device");
  status.devices = 2;
  EXPECT_EQ(refusal(status, 2, CudaComm::kNccl), "");
  EXPECT_PRED2(says, refusal(status, 3, CudaComm::kNccl), "3 ranks on this host have 2 CUDA devices");
  EXPECT_EQ(refusal(status, 3, CudaComm::kStaged), "");
  // A driver older than libtorch's CUDA that serves devices all the same (one major version) is no reason.
  status.runtime_version = 13010;
  EXPECT_EQ(refusal(status, 1, CudaComm::kNccl), "");
}

TEST(CudaComm, IsChosenByOptionThenEnvironment) {
  const Variable variable("WIREWISE_CUDA_COMM", "staged");
  EXPECT_EQ(choose_cuda_comm("", "--comm"), CudaComm::kStaged);
  EXPECT_EQ(choose_cuda_comm("nccl", "--comm"), CudaComm::kNccl);
  try {
    (void)choose_cuda_comm("gloo", "--comm");
    ADD_FAILURE() << "gloo was taken";
  } catch (const Error& error) {
    EXPECT_PRED2(says, error.what(), "--comm is gloo");
  }
  const Variable wrong("WIREWISE_CUDA_COMM", "mpi");
  EXPECT_THROW((void)choose_cuda_comm("", "--comm"), Error);
}

/// What loading says with WIREWISE_CUDA_LIBRARY set to `path`.
std::string load_error(const std::filesystem::path& path) {
  const Variable variable("WIREWISE_CUDA_LIBRARY", path.string());
  try {
    (void)load_cuda_library();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.what();
  }
}

// Before the library is loaded: once is for good. gtest runs the tests of a suite in order.
TEST(CudaLibrary, IsRefusedWhenItIsAbsentBrokenOrAnothers) {
  EXPECT_PRED2(says, load_error("/nonexistent/libwirewise_cuda.so"), "is missing at /nonexistent/libwirewise_cuda.so");
  const std::filesystem::path broken = std::filesystem::temp_directory_path() / ("wirewise-broken-" + std::to_string(::getpid()) + ".so");
  std::ofstream(broken) << "no library";
  EXPECT_PRED2(says, load_error(broken), "can't be loaded");
  std::filesystem::remove(broken);
  EXPECT_PRED2(says, load_error(std::filesystem::path(WIREWISE_TORCH_LIBRARY)), "belongs to another Wirewise: it is no entry point");
}

TEST(CudaLibrary, LoadsAndSaysWhatThisMachineHas) {
  if (!std::filesystem::exists(kLibrary)) GTEST_SKIP() << "not built: the torch wheel brings no CUDA";
  void* library = ::dlopen(kLibrary.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  const auto entry = reinterpret_cast<CudaLibraryEntry>(::dlsym(library, kCudaLibraryEntry));
  ASSERT_NE(entry, nullptr);
  const char* theirs = "";
  EXPECT_EQ(entry(kCudaLibraryAbi + 1, WIREWISE_VERSION, &theirs), nullptr);
  EXPECT_EQ(entry(kCudaLibraryAbi, "0.0.0", &theirs), nullptr);
  EXPECT_PRED2(says, theirs, WIREWISE_VERSION);
  // Core and libtorch inside it stay its own: nothing but the entry point is to be seen.
  EXPECT_EQ(::dlsym(library, "_ZN8wirewise17load_cuda_libraryEv"), nullptr);

  EXPECT_EQ(load_error(kLibrary), "");
  const CudaStatus status = load_cuda_library().status();
  EXPECT_GE(status.runtime_version, 12000);
  EXPECT_GE(status.nccl_version, 22000);
  if (status.devices > 0) GTEST_SKIP() << "this machine has a device: ./run gpu-check goes on from here";
  for (const CudaComm comm : {CudaComm::kNccl, CudaComm::kStaged}) {
    try {
      (void)open_cuda_device(0, 1, comm);
      ADD_FAILURE() << "a device where there is none";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_PRED2(says, error.what(), status.driver_version == 0 ? "no NVIDIA driver" : "");
      EXPECT_PRED2(says, error.remedy(), "--device cpu");
    }
  }
  // An error that crosses the library's border is caught as what it is.
  EXPECT_THROW((void)load_cuda_library().device(0), Error);
}

}  // namespace
}  // namespace wirewise
