// What a run reports: JSON lines and TensorBoard events (torchtitan's tag names).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "wirewise/base/units.h"

namespace wirewise {

/// One optimizer step, as the contract names its fields.
struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  std::uint64_t tokens = 0;            // consumed so far, all ranks
  Seconds step_s = 0;
  double tokens_per_s = 0;
  double tokens_per_s_per_rank = 0;
  double mfu = 0;                      // fraction
  Seconds exposed_comm_s = 0;
  Bytes memory_measured = 0;           // peak tensor bytes of the rank that holds most
  Bytes memory_predicted = 0;
  double loss_scale = 0;               // fp16 only; 0: absent
  bool skipped = false;                // fp16: overflow, weights unchanged
};

/// The JSON line of a step: keys as in the contract, losses with 9 digits.
[[nodiscard]] std::string to_json(const StepMetrics& metrics);
[[nodiscard]] std::string validation_json(std::int64_t step, double loss);
/// event: "done", "stopped" or "failed".
[[nodiscard]] std::string final_json(const std::string& event, const std::string& weights_sha256, const std::string& checkpoint);

/// Writes TensorBoard event files (TFRecord framing with masked CRC-32C, Event protobufs of scalars).
class EventWriter {
 public:
  explicit EventWriter(const std::filesystem::path& folder);
  ~EventWriter();
  void scalar(const std::string& tag, std::int64_t step, double value);
  void step(const StepMetrics& metrics);   // all of a step's tags
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace wirewise
