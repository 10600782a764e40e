// Everything that a run tells while it goes on: the bar on a terminal, metrics.jsonl, TensorBoard's events, lines of JSON.
#pragma once

#include <fstream>
#include <memory>
#include <string>

#include "wirewise/base/progress.h"
#include "wirewise/train/config.h"
#include "wirewise/train/metrics.h"

namespace wirewise {

/// Only an active one tells anything: that of rank 0.
class Reporter {
 public:
  /// `json`: lines of JSON on standard output. `config` must outlive it.
  Reporter(const TrainConfig& config, bool json, bool active, std::int64_t first_step);

  void step(const StepMetrics& metrics);
  void validation(std::int64_t step, double loss);
  void note(const std::string& text);
  void line(const std::string& text);
  void finish();
  /// Plain text for a person, after the bar.
  void text(const std::string& text) const;

 private:
  const TrainConfig& config_;
  bool json_;
  bool active_;
  std::ofstream lines_;
  std::unique_ptr<EventWriter> events_;
  std::unique_ptr<Progress> progress_;
};

}  // namespace wirewise
