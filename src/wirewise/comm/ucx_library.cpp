#include "wirewise/comm/ucx_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/ucx_network.h"

namespace wirewise::comm {

#ifdef WIREWISE_WITH_UCX
namespace {

constexpr unsigned kMajor = 1;
// The oldest whose failed endpoints complete their requests; newer ones keep the binary interface of 1.x.
constexpr unsigned kOldestMinor = 11;
constexpr const char* kPackage = "Install UCX (Debian and Ubuntu: apt install libucx0), or run all ranks on one host.";

/// Holds settings in the environment while the library loads: it reads some only then (its signal handlers and memory hooks). The table
/// is swapped whole, because other threads may be reading the old one; a setting of the user's stays.
class LoadingEnvironment {
 public:
  explicit LoadingEnvironment(std::vector<std::string> settings) : settings_(std::move(settings)), before_(environ) {
    for (char** entry = before_; entry != nullptr && *entry != nullptr; ++entry) table_.push_back(*entry);
    for (std::string& setting : settings_) {
      const std::string name = setting.substr(0, setting.find('='));
      if (std::getenv(name.c_str()) == nullptr) table_.push_back(setting.data());
    }
    table_.push_back(nullptr);
    environ = table_.data();
  }
  ~LoadingEnvironment() {
    if (environ == table_.data()) environ = before_;
  }
  LoadingEnvironment(const LoadingEnvironment&) = delete;
  LoadingEnvironment& operator=(const LoadingEnvironment&) = delete;

 private:
  std::vector<std::string> settings_;
  std::vector<char*> table_;
  char** before_;
};

void* open_library(const char* name) {
  // Never unloaded: it has threads and thread-local state.
  void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw Error(ErrorKind::kFailed,
                std::string("Ranks on several hosts talk through UCX, and its library ") + name + " can't be loaded (" +
                    (why == nullptr ? "no reason given" : why) + ").",
                kPackage);
  }
  return library;
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  void* const symbol = ::dlsym(library, name);
  if (symbol == nullptr) {
    throw Error(ErrorKind::kFailed, std::string("The installed UCX lacks the function ") + name + ".", kPackage);
  }
  static_assert(sizeof(Function) == sizeof(void*));
  std::memcpy(&function, &symbol, sizeof symbol);
}

}  // namespace

UcxLibrary load_ucx() {
  void* ucp = nullptr;
  void* ucs = nullptr;
  {
    const LoadingEnvironment quiet({"UCX_HANDLE_ERRORS=none", "UCX_MEM_EVENTS=n", "UCX_LOG_LEVEL=fatal", "UCX_WARN_UNUSED_ENV_VARS=n"});
    ucs = open_library("libucs.so.0");
    ucp = open_library("libucp.so.0");
  }
  UcxLibrary library;
  find(ucp, "ucp_get_version", library.get_version);
  find(ucp, "ucp_get_version_string", library.get_version_string);
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  library.get_version(&major, &minor, &release);
  if (major != kMajor || minor < kOldestMinor) {
    throw Error(ErrorKind::kFailed,
                std::string("The installed UCX is version ") + library.get_version_string() + "; wirewise works with 1." +
                    std::to_string(kOldestMinor) + " and later 1.x.",
                kPackage);
  }
  find(ucp, "ucp_config_read", library.config_read);
  find(ucp, "ucp_config_modify", library.config_modify);
  find(ucp, "ucp_config_release", library.config_release);
  find(ucp, "ucp_init_version", library.init_version);
  find(ucp, "ucp_cleanup", library.cleanup);
  find(ucp, "ucp_worker_create", library.worker_create);
  find(ucp, "ucp_worker_destroy", library.worker_destroy);
  find(ucp, "ucp_worker_get_address", library.worker_get_address);
  find(ucp, "ucp_worker_release_address", library.worker_release_address);
  find(ucp, "ucp_worker_get_efd", library.worker_get_efd);
  find(ucp, "ucp_worker_arm", library.worker_arm);
  find(ucp, "ucp_worker_progress", library.worker_progress);
  find(ucp, "ucp_worker_set_am_recv_handler", library.worker_set_am_recv_handler);
  find(ucp, "ucp_ep_create", library.ep_create);
  find(ucp, "ucp_ep_close_nbx", library.ep_close_nbx);
  find(ucp, "ucp_ep_flush_nbx", library.ep_flush_nbx);
  find(ucp, "ucp_ep_print_info", library.ep_print_info);
  find(ucp, "ucp_am_send_nbx", library.am_send_nbx);
  find(ucp, "ucp_tag_send_nbx", library.tag_send_nbx);
  find(ucp, "ucp_tag_recv_nbx", library.tag_recv_nbx);
  find(ucp, "ucp_tag_probe_nb", library.tag_probe_nb);
  find(ucp, "ucp_request_cancel", library.request_cancel);
  find(ucp, "ucp_request_check_status", library.request_check_status);
  find(ucp, "ucp_request_free", library.request_free);
  find(ucs, "ucs_status_string", library.status_string);
  return library;
}

std::string why_no_ucx() {
  try {
    (void)load_ucx();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

std::string ucx_version() {
  try {
    return load_ucx().get_version_string();
  } catch (const Error&) {
    return {};
  }
}

#else

std::string why_no_ucx() {
  return "This build of wirewise has no UCX, through which ranks on several hosts talk. Install its headers (Debian and Ubuntu: "
         "apt install libucx-dev) and build again, or run all ranks on one host.";
}

std::string ucx_version() { return {}; }

std::unique_ptr<NetworkEnd> make_ucx_end(const NetworkInterface& /*interface*/) {
  throw Error(ErrorKind::kFailed, "Ranks on several hosts talk through UCX, and this build of wirewise has none.",
              "Install its headers (Debian and Ubuntu: apt install libucx-dev) and build again, or run all ranks on one host.");
}

#endif

}  // namespace wirewise::comm
