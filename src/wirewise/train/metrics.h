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

/// The JSON line of a step, without its newline: keys as in the contract, losses and other reals with 9 significant digits, null where a
/// number isn't finite. loss_scale and skipped appear with loss scaling only.
[[nodiscard]] std::string to_json(const StepMetrics& metrics);
[[nodiscard]] std::string validation_json(std::int64_t step, double loss);
/// event: "done", "stopped" or "failed". Empty texts become null.
[[nodiscard]] std::string final_json(const std::string& event, const std::string& weights_sha256, const std::string& checkpoint);

/// Writes TensorBoard event files (TFRecord framing with masked CRC-32C, Event protobufs of scalars).
class EventWriter {
 public:
  /// Creates `folder` if need be, and a new event file in it. Throws kFailed naming the file when it can't.
  explicit EventWriter(const std::filesystem::path& folder);
  ~EventWriter();
  void scalar(const std::string& tag, std::int64_t step, double value);
  /// loss_metrics/global_avg_loss, grad_norm, lr, throughput(tps) (of a rank), mfu(%), time_metrics/end_to_end(s), memory/max_active(GiB).
  void step(const StepMetrics& metrics);
  /// validation_metrics/loss.
  void validation(std::int64_t step, double loss);
  /// Hands what was written to the system, so that a reader sees it. Throws kFailed naming the file when the disk is full.
  void flush();
  [[nodiscard]] const std::filesystem::path& file() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// CRC-32C (Castagnoli), as TFRecords use it.
[[nodiscard]] std::uint32_t crc32c(const void* data, std::size_t bytes) noexcept;

}  // namespace wirewise
