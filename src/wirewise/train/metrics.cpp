// JSON lines. Written by hand, since the contract fixes the order of the keys and the digits of the numbers.
#include "wirewise/train/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace wirewise {
namespace {

std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null"; }

std::string text_or_null(const std::string& text) {
  return text.empty() ? "null" : nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string to_json(const StepMetrics& metrics) {
  std::string line = fmt::format(
      R"({{"step":{},"loss":{},"grad_norm":{},"lr":{},"tokens":{},"step_s":{},"tokens_per_s":{},"tokens_per_s_per_rank":{},"mfu":{},)"
      R"("exposed_comm_s":{},"memory_measured_bytes":{},"memory_predicted_bytes":{})",
      metrics.step, number(metrics.loss), number(metrics.grad_norm), number(metrics.lr), metrics.tokens, number(metrics.step_s),
      number(metrics.tokens_per_s), number(metrics.tokens_per_s_per_rank), number(metrics.mfu), number(metrics.exposed_comm_s),
      metrics.memory_measured, metrics.memory_predicted);
  if (metrics.loss_scale != 0) {
    line += fmt::format(R"(,"loss_scale":{},"skipped":{})", number(metrics.loss_scale), metrics.skipped ? "true" : "false");
  }
  return line + "}";
}

std::string validation_json(std::int64_t step, double loss) {
  return fmt::format(R"({{"event":"validation","step":{},"loss":{}}})", step, number(loss));
}

std::string final_json(const std::string& event, const std::string& weights_sha256, const std::string& checkpoint) {
  return fmt::format(R"({{"event":{},"weights_sha256":{},"checkpoint":{}}})", text_or_null(event), text_or_null(weights_sha256),
                     text_or_null(checkpoint));
}

}  // namespace wirewise
