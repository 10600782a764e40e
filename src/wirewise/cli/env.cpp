// `wirewise env`: what this build and this machine are, as a bug report needs it.
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "wirewise/base/cgroup.h"
#include "wirewise/base/error.h"
#include "wirewise/base/rank_env.h"
#include "wirewise/base/text.h"
#include "wirewise/base/units.h"
#include "wirewise/cli/commands.h"
#include "wirewise/cli/libtorch_version.h"

namespace wirewise {
namespace {

using Json = nlohmann::ordered_json;

/// The variables that say which rank a process is and how it behaves. No others are shown: an environment also holds secrets.
constexpr std::array kShown{
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "SLURM_NNODES",
    "SLURM_STEP_NODELIST",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMP_NUM_THREADS",
    "WIREWISE_STORE",
    "WIREWISE_DEBUG",
    "WIREWISE_HOST_ID",
    "WIREWISE_RESTART",
    "WIREWISE_RSH",
    "CUDA_VISIBLE_DEVICES",
    "NO_COLOR",
};

constexpr const char* compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const auto colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) found.emplace_back("avx2");
  if (__builtin_cpu_supports("fma")) found.emplace_back("fma");
  if (__builtin_cpu_supports("avx512f")) found.emplace_back("avx512f");
  if (__builtin_cpu_supports("avx512bw")) found.emplace_back("avx512bw");
  if (__builtin_cpu_supports("avx512vnni")) found.emplace_back("avx512vnni");
  if (__builtin_cpu_supports("avx512bf16")) found.emplace_back("avx512bf16");
#endif
  // Older compilers can't ask for these by name.
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("flags", 0) != 0) continue;
    for (const std::string& flag : split(line, ' ')) {
      if (flag == "amx_bf16" || flag == "amx_int8" || flag == "avx512_fp16") found.push_back(flag);
    }
    break;
  }
  return found;
}

Json shared_memory() {
  struct statvfs volume {};
  if (statvfs("/dev/shm", &volume) != 0) return nullptr;
  return {{"size_bytes", volume.f_blocks * volume.f_frsize}, {"free_bytes", volume.f_bavail * volume.f_frsize}};
}

Json ranks() {
  try {
    const RankEnvironment env = read_rank_environment();
    return {{"launcher", name_of(env.launcher)},
            {"rank", env.rank},
            {"ranks", env.ranks},
            {"local_rank", env.local_rank},
            {"local_ranks", env.local_ranks}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

Json environment() {
  utsname system{};
  uname(&system);
  struct sysinfo memory {};
  sysinfo(&memory);
  const CgroupLimits limits = cgroup_limits();
  Json variables = Json::object();
  for (const char* name : kShown) {
    if (const char* value = std::getenv(name)) variables[name] = printable(value);
  }
#ifdef WIREWISE_WITH_TORCH
  const std::string torch = libtorch_version();
#else
  const std::string torch;
#endif
  return {{"version", WIREWISE_VERSION},
          {"compiler", compiler()},
          {"libtorch", torch.empty() ? Json(nullptr) : Json(torch)},
          {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
          {"host", printable(system.nodename)},
          {"cpu", cpu_model()},
          {"cpu_features", cpu_features()},
          {"cores", std::thread::hardware_concurrency()},
          {"usable_cores", usable_cores()},
          {"memory_bytes", static_cast<Bytes>(memory.totalram) * memory.mem_unit},
          {"cgroup_cpus", limits.cpus ? Json(*limits.cpus) : Json(nullptr)},
          {"cgroup_memory_bytes", limits.memory ? Json(*limits.memory) : Json(nullptr)},
          {"dev_shm", shared_memory()},
          {"ranks", ranks()},
          {"variables", variables}};
}

std::string bytes_text(const Json& value) { return value.is_null() ? "none" : format_bytes(value.get<Bytes>()); }

void print_text(const Json& env) {
  const auto line = [](std::string label, const std::string& value) {
    label.resize(16, ' ');
    std::cout << label << value << "\n";
  };
  line("wirewise", env["version"].get<std::string>());
  line("compiler", env["compiler"].get<std::string>());
  line("libtorch", env["libtorch"].is_null() ? "not in this build" : env["libtorch"].get<std::string>());
  line("system", env["system"].get<std::string>() + ", host " + env["host"].get<std::string>());
  line("cpu", env["cpu"].get<std::string>());
  line("cpu features", join(env["cpu_features"].get<std::vector<std::string>>(), " "));
  line("cores", env["cores"].dump() + ", usable " + env["usable_cores"].dump());
  line("memory", bytes_text(env["memory_bytes"]));
  line("cgroup limits", "cpus " + (env["cgroup_cpus"].is_null() ? "none" : env["cgroup_cpus"].dump()) + ", memory " +
                            bytes_text(env["cgroup_memory_bytes"]));
  const Json& shm = env["dev_shm"];
  line("/dev/shm", shm.is_null() ? "absent" : bytes_text(shm["size_bytes"]) + ", free " + bytes_text(shm["free_bytes"]));
  const Json& rank = env["ranks"];
  if (rank.contains("error")) {
    line("ranks", "error: " + rank["error"].get<std::string>());
  } else {
    line("ranks",
         "rank " + rank["rank"].dump() + " of " + rank["ranks"].dump() + ", launcher " + rank["launcher"].get<std::string>());
  }
  for (const auto& [name, value] : env["variables"].items()) line("", name + "=" + value.get<std::string>());
}

}  // namespace

void register_env(CLI::App& app, int& exit) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("env", "What this build and this machine are");
  command->add_flag("--json", *json, "One line of JSON");
  command->callback([json, &exit] {
    const Json env = environment();
    if (*json) {
      std::cout << env.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
    } else {
      print_text(env);
    }
    exit = 0;
  });
}

}  // namespace wirewise
