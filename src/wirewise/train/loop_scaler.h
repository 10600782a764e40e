// Dynamic loss scaling for float16: halve on overflow, double after a window of clean steps. Its state is part of a checkpoint.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

#include "wirewise/base/error.h"
#include "wirewise/train/checkpoint.h"
#include "wirewise/train/config.h"

namespace wirewise {

class LossScaler {
 public:
  explicit LossScaler(const TrainConfig& config)
      : enabled_(config.strategy.param_dtype == DType::kFloat16 || config.strategy.reduce_dtype == DType::kFloat16),
        scale_(!enabled_ ? 1.0 : config.loss_scale > 0 ? config.loss_scale : 65536.0),
        window_(config.loss_scale_window),
        max_skipped_(config.max_skipped) {}

  [[nodiscard]] bool enabled() const noexcept { return enabled_; }
  [[nodiscard]] double scale() const noexcept { return scale_; }

  /// After a step whose gradients were finite.
  void good() {
    skipped_ = 0;
    if (!enabled_ || ++clean_ < window_) return;
    clean_ = 0;
    scale_ = std::min(scale_ * 2, 16777216.0);
  }

  /// After a step that was skipped. Throws when training can't go on: too many in a row.
  void overflow(const std::string& where) {
    clean_ = 0;
    ++skipped_;
    if (skipped_ >= max_skipped_) {
      throw Error(ErrorKind::kFailed,
                  "gradients overflowed float16 in " + std::to_string(skipped_) + " steps in a row, at last with loss scale " +
                      std::to_string(scale_) + ", first in " + where + ".",
                  "Nothing is learnt this way. Set strategy.param_dtype = \"bfloat16\", lower train.lr, or raise train.max_skipped.");
    }
    scale_ = std::max(scale_ / 2, std::ldexp(1.0, -14));
  }

  void save(TrainState& state) const {
    if (!enabled_) return;
    state["loss_scale"] = exact_text(scale_);
    state["loss_scale_clean"] = std::to_string(clean_);
    state["loss_scale_skipped"] = std::to_string(skipped_);
  }

  void load(const TrainState& state) {
    if (!enabled_) return;
    if (const auto found = state.find("loss_scale"); found != state.end()) scale_ = std::stod(found->second);
    if (const auto found = state.find("loss_scale_clean"); found != state.end()) clean_ = std::stoi(found->second);
    if (const auto found = state.find("loss_scale_skipped"); found != state.end()) skipped_ = std::stoi(found->second);
  }

 private:
  /// The shortest text that reads back to the same value: scales go down to 2^-14, far below what six decimals hold.
  static std::string exact_text(double value) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
  }

  bool enabled_;
  double scale_;
  int window_;
  int max_skipped_;
  int clean_ = 0;
  int skipped_ = 0;
};

}  // namespace wirewise
