#include "wirewise/wiring/nvidia_report.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>

#include "wirewise/base/text.h"
#include "wirewise/wiring/listed_gpus.h"

namespace wirewise {
namespace {

/// A value's place in both forms, and the name of the fact that it becomes. Old and new drivers' names stand in rows of their own.
struct Wanted {
  std::string_view text, xml, name;
};
constexpr std::string_view kModel = "model", kMemory = "memory", kState = "performance state", kIdle = "idle", kMig = "MIG", kFabric = "NVLink fabric", kFabricStatus = "NVLink fabric status";
constexpr std::string_view kGeneration = "PCIe generation", kMostGeneration = "PCIe generation, most", kWidth = "PCIe width", kMostWidth = "PCIe width, most";
constexpr std::string_view kSlotGeneration = "PCIe generation of the slot", kUtilization = "utilization";
constexpr std::string_view kPending = "remapped rows pending", kFailure = "row remapping failed", kRetired = "retired pages pending";
constexpr Wanted kWanted[] = {
    {"product_name", "product_name", kModel},
    {"gpu_uuid", "uuid", "uuid"},
    {"product_architecture", "product_architecture", "architecture"},
    {"minor_number", "minor_number", "minor number"},
    {"persistence_mode", "persistence_mode", "persistence mode"},
    {"compute_mode", "compute_mode", "compute mode"},
    {"mig_mode/current", "mig_mode/current_mig", kMig},
    {"gpu_virtualization_mode/virtualization_mode", "gpu_virtualization_mode/virtualization_mode", "virtualization"},
    {"addressing_mode", "addressing_mode", "addressing mode"},
    {"gpu_c2c_mode", "c2c_mode", "NVLink-C2C"},
    {"pci/gpu_link_info/pcie_generation/current", "pci/pci_gpu_link_info/pcie_gen/current_link_gen", kGeneration},
    {"pci/gpu_link_info/pcie_generation/max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen", kMostGeneration},
    {"pci/gpu_link_info/pcie_generation/device_max", "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen", "PCIe generation of the GPU"},
    {"pci/gpu_link_info/pcie_generation/host_max", "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen", kSlotGeneration},
    {"pci/gpu_link_info/link_width/current", "pci/pci_gpu_link_info/link_widths/current_link_width", kWidth},
    {"pci/gpu_link_info/link_width/max", "pci/pci_gpu_link_info/link_widths/max_link_width", kMostWidth},
    {"pci/replays_since_reset", "pci/replay_counter", "PCIe replays"},
    {"performance_state", "performance_state", kState},
    {"clocks_event_reasons/idle", "clocks_event_reasons/clocks_event_reason_gpu_idle", kIdle},
    {"clocks_throttle_reasons/idle", "clocks_throttle_reasons/clocks_throttle_reason_gpu_idle", kIdle},
    {"clocks_event_reasons/hw_slowdown", "clocks_event_reasons/clocks_event_reason_hw_slowdown", "slowed by hardware"},
    {"clocks_throttle_reasons/hw_slowdown", "clocks_throttle_reasons/clocks_throttle_reason_hw_slowdown", "slowed by hardware"},
    {"fb_memory_usage/total", "fb_memory_usage/total", kMemory},
    {"memory_usage/total", "memory_usage/total", kMemory},
    {"fb_memory_usage/used", "fb_memory_usage/used", "memory used"},
    {"utilization/gpu", "utilization/gpu_util", kUtilization},
    {"ecc_mode/current", "ecc_mode/current_ecc", "ECC"},
    {"ecc_errors/volatile/dram_uncorrectable", "ecc_errors/volatile/dram_uncorrectable", "ECC errors, uncorrected"},
    {"ecc_errors/volatile/double_bit/total", "ecc_errors/volatile/double_bit/total", "ECC errors, uncorrected"},
    {"ecc_errors/volatile/total", "ecc_errors/volatile/total", "ECC errors"},
    {"ecc_errors/aggregate/dram_uncorrectable", "ecc_errors/aggregate/dram_uncorrectable", "ECC errors of its life, uncorrected"},
    {"ecc_errors/aggregate/double_bit/total", "ecc_errors/aggregate/double_bit/total", "ECC errors of its life, uncorrected"},
    {"remapped_rows/pending", "remapped_rows/remapped_row_pending", kPending},
    {"remapped_rows/remapping_failure_occurred", "remapped_rows/remapped_row_failure", kFailure},
    {"retired_pages/pending_page_blacklist", "retired_pages/pending_retirement", kRetired},
    {"retired_pages/pending", "retired_pages/pending_blacklist", kRetired},
    {"temperature/gpu_current_temp", "temperature/gpu_temp", "temperature"},
    {"gpu_power_readings/current_power_limit", "gpu_power_readings/current_power_limit", "power limit"},
    {"power_readings/power_limit", "power_readings/power_limit", "power limit"},
    {"clocks/sm", "clocks/sm_clock", "SM clock"},
    {"max_clocks/sm", "max_clocks/sm_clock", "SM clock, most"},
    {"fabric/state", "fabric/state", kFabric},
    {"fabric/status", "fabric/status", kFabricStatus},
    {"fabric/cliqueid", "fabric/cliqueid", "NVLink clique"},
    {"fabric/clusteruuid", "fabric/clusteruuid", "NVLink domain"},
    {"fabric/health/bandwidth", "fabric/fabric_health/fabric_bandwidth", "NVLink fabric bandwidth"},
};

/// "4" and "16x" of PCIe; 0 for what is neither.
int small_number(std::string_view value) {
  if (value.ends_with("x")) value.remove_suffix(1);
  const auto number = parse_integer(value);
  return number && *number > 0 && *number <= 64 ? static_cast<int>(*number) : 0;
}

/// "81559 MiB"; old drivers write MB and mean the same.
Bytes memory_of(const std::string& value) {
  const std::size_t blank = value.find(' ');
  const auto number = parse_integer(value.substr(0, blank));
  const std::string_view unit = blank == std::string::npos ? std::string_view{} : std::string_view(value).substr(blank + 1);
  return number && *number > 0 && *number < 1LL << 32 && (unit == "MiB" || unit == "MB") ? static_cast<Bytes>(*number) * kMiB : 0;
}

class Builder {
 public:
  explicit Builder(Reading& reading) : reading_(reading) {}

  void add(const ReportGpu& gpu, int index) {
    at_ = add_listed_gpu(reading_.wiring, index, "");
    name_ = device().name;
    device().pci = listed_pci(gpu.bus_id);
    pcie_ = {};
    idle_.reset();
    working_ = false;
    slot_generation_ = 0;
    stated_.clear();
    mig_.clear();
    for (const ReportField& field : gpu.fields) take(field);
    if (working_) idle_ = false;
    if (slot_generation_ > 0) pcie_.most_generation = std::min(pcie_.most_generation, slot_generation_);
    set_listed_pcie(reading_, at_, pcie_, idle_, gpu.line);
  }

 private:
  Device& device() { return reading_.wiring.devices[static_cast<std::size_t>(at_)]; }
  void note(int line, std::string text, std::string remedy = {}) { reading_.notes.push_back({line, 0, std::move(text), std::move(remedy)}); }

  void take(const ReportField& field) {
    const auto row = std::find_if(std::begin(kWanted), std::end(kWanted), [&](const Wanted& wanted) { return field.path == wanted.text || field.path == wanted.xml; });
    if (row != std::end(kWanted)) {
      if (not_stated(field.value) || !stated_.insert(row->name).second) return;  // said twice: the first, as processes come last
      read(row->name, field);
      return;
    }
    const bool device = field.path.find("mig_device") != std::string::npos;
    if (device && (field.path.ends_with("/index") || field.path.ends_with("/fb_memory_usage/total"))) read_mig_device(field);
  }

  void read(std::string_view name, const ReportField& field) {
    const std::string& value = field.value;
    if (name == kModel) {
      device().model = value;
      return;
    }
    if (name == kMemory) device().memory = memory_of(value);
    if (name == kGeneration) pcie_.generation = small_number(value);
    if (name == kMostGeneration) pcie_.most_generation = small_number(value);
    if (name == kWidth) pcie_.lanes = small_number(value);
    if (name == kMostWidth) pcie_.most_lanes = small_number(value);
    if (name == kState && !idle_) idle_ = rests(value);
    if (name == kIdle) idle_ = value == "Active";
    if (name == kUtilization) working_ = at_work(value);
    if (name == kSlotGeneration) slot_generation_ = small_number(value);
    if (name == kMig && value == "Enabled") note(field.line, name_ + " is divided by MIG: a process gets a slice's memory and units, not the card's.");
    if (name == kFabric && value != "Completed") note(field.line, name_ + "'s NVLink fabric is " + value + ": it isn't ready, and CUDA can't start there.", "Start nvidia-fabricmanager of the driver's version, and look at its log.");
    if (name == kFabricStatus && value != "Success") note(field.line, name_ + "'s NVLink fabric says " + value + ".", "Look at nvidia-fabricmanager's log.");
    if ((name == kPending || name == kRetired) && value == "Yes") note(field.line, name_ + " waits for a reset to take memory that fails out of use.", "End what runs on it, then nvidia-smi --gpu-reset, or restart the host.");
    if (name == kFailure && value == "Yes") note(field.line, name_ + " can't take failing memory out of use any more.", "Take it out of service: it wants a replacement.");
    if (name == "slowed by hardware" && value == "Active") note(field.line, name_ + " is slowed down by its hardware: heat or power.", "Look at its temperature, fans and air flow, and at the power supply and its cables.");
    if (name == "ECC errors, uncorrected" && value != "0") note(field.line, name_ + " had " + value + " memory errors that weren't corrected since its driver was loaded.",
                                                                          "Look for Xid 48, 63, 64, 94 and 95 in dmesg; reset the GPU, and have it replaced if they come again.");
    reading_.facts.push_back({name_, std::string(name), value, field.line});
  }

  void read_mig_device(const ReportField& field) {
    if (field.path.ends_with("/index")) mig_ = field.value;
    else if (!mig_.empty()) reading_.facts.push_back({name_, "MIG device " + mig_, field.value, field.line});
  }

  Reading& reading_;
  int at_ = -1;
  std::string name_, mig_;
  PcieSeen pcie_;
  std::optional<bool> idle_;
  bool working_ = false;
  int slot_generation_ = 0;
  std::set<std::string_view> stated_;
};

}  // namespace

void add_nvidia_report(const NvidiaReport& report, Reading& reading) {
  add_listed_host(reading.wiring);
  for (const ReportField& field : report.fields) {
    for (const auto& [path, name] : {std::pair{"driver_version", "driver"}, std::pair{"cuda_version", "CUDA"}, std::pair{"timestamp", "time"}}) {
      if (field.path == path && !not_stated(field.value)) reading.facts.push_back({"host0", name, field.value, field.line});
    }
  }
  Builder builder(reading);
  int index = 0;
  for (const ReportGpu& gpu : report.gpus) builder.add(gpu, index++);
  std::set<std::string> models;
  for (const Device& device : reading.wiring.devices) {
    if (!device.model.empty()) models.insert(device.model);
  }
  if (models.size() > 1) reading.notes.push_back({0, 0, "the GPUs differ: " + join(std::vector<std::string>(models.begin(), models.end()), ", ") + "."});
  const auto attached = std::find_if(report.fields.begin(), report.fields.end(), [](const ReportField& field) { return field.path == "attached_gpus"; });
  if (attached == report.fields.end()) return;
  const auto count = parse_integer(attached->value);
  if (!count || *count == static_cast<long long>(report.gpus.size())) return;
  reading.notes.push_back({attached->line, 0, attached->value + " GPUs are attached, " + std::to_string(report.gpus.size()) + " described: they are numbered in the order in which they stand here."});
  reading.partial = true;
}

}  // namespace wirewise
