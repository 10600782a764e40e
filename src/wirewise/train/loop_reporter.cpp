#include "wirewise/train/loop_reporter.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace wirewise {

Reporter::Reporter(const TrainConfig& config, bool json, bool active, std::int64_t first_step) : config_(config), json_(json), active_(active) {
  if (!active_) return;
  if (!config_.out.empty()) {
    if (config_.jsonl) lines_.open(config_.out / "metrics.jsonl", std::ios::app);
    if (config_.tensorboard) events_ = std::make_unique<EventWriter>(config_.out / "tensorboard");
  }
  progress_ = std::make_unique<Progress>("train", static_cast<std::uint64_t>(config_.steps));
  progress_->update(static_cast<std::uint64_t>(first_step));
}

void Reporter::step(const StepMetrics& metrics) {
  if (!active_) return;
  if (metrics.step % config_.log_every == 0 || metrics.step == config_.steps || metrics.skipped) {
    line(to_json(metrics));
    if (events_) events_->step(metrics);
  }
  char detail[96];
  std::snprintf(detail, sizeof detail, "loss %.4f, %.0f tokens/s, %s a step", metrics.loss, metrics.tokens_per_s, format_seconds(metrics.step_s).c_str());
  progress_->update(static_cast<std::uint64_t>(metrics.step), detail);
}

void Reporter::validation(std::int64_t step, double loss) {
  if (!active_) return;
  line(validation_json(step, loss));
  if (events_) events_->validation(step, loss);
  char text[96];
  std::snprintf(text, sizeof text, "step %lld: validation loss %.4f", static_cast<long long>(step), loss);
  note(text);
}

void Reporter::note(const std::string& text) {
  if (active_) progress_->note(text);
}

void Reporter::line(const std::string& text) {
  if (!active_) return;
  if (json_) std::cout << text << std::endl;
  if (!lines_.is_open()) return;
  lines_ << text << std::endl;
  if (lines_) return;
  lines_.close();  // the run matters more than its record
  note("warning: metrics.jsonl can't be written any more: " + std::string(std::strerror(errno)) + ".");
}

void Reporter::finish() {
  if (!active_) return;
  progress_->finish();
  if (events_) events_->flush();
}

void Reporter::text(const std::string& text) const {
  if (active_) std::cerr << text << std::flush;
}

}  // namespace wirewise
