#include "wirewise/train/loop_report.h"

#include <cstdio>
#include <set>
#include <sstream>

#include "wirewise/sim/traffic.h"

namespace wirewise {
namespace {

std::string percent(double predicted, double measured) {
  if (measured <= 0) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f %%", 100.0 * (predicted - measured) / measured);
  return text;
}

/// A device's allocator knows no categories.
std::string measured_bytes(Bytes bytes) { return bytes == 0 ? "not measured" : format_bytes(bytes); }

std::string row(const std::string& name, const std::string& predicted, const std::string& measured, const std::string& difference) {
  char text[160];
  std::snprintf(text, sizeof text, "  %-16s %14s %14s %10s\n", name.c_str(), predicted.c_str(), measured.c_str(), difference.c_str());
  return text;
}

Seconds of(const SimReport& report, OpKind kind) {
  const auto found = report.by_kind.find(kind);
  return found == report.by_kind.end() ? 0 : found->second;
}

std::set<OpKind> kinds_of(const Prepared& prepared) {
  std::set<OpKind> kinds;
  for (const Op& op : prepared.train.programs.front().ops) kinds.insert(op.kind);
  return kinds;
}

}  // namespace

void TimeSums::add(const Timeline& timeline, const Program& program) {
  if (seen_++ == 0) return;
  ++steps_;
  step_ += timeline.step;
  for (const auto& [kind, seconds] : timeline.by_kind(program)) sums_[kind] += seconds;
}

Seconds TimeSums::of(OpKind kind) const {
  const auto found = sums_.find(kind);
  return found == sums_.end() || steps_ == 0 ? 0 : found->second / static_cast<double>(steps_);
}

std::string report_text(const Prepared& prepared, const memory::Usage& measured, const SimReport& predicted, const TimeSums& time) {
  std::string text = "\nmemory of a rank" + row("", "predicted", "measured", "difference").substr(18);
  for (const Category category : {Category::kParams, Category::kGrads, Category::kOptimizer}) {
    const auto index = static_cast<std::size_t>(category);
    const Bytes plan = prepared.memory.category_peak[index];
    const Bytes real = measured.category_peak[index];
    text += row(std::string(name_of(category)), format_bytes(plan), measured_bytes(real), percent(static_cast<double>(plan), static_cast<double>(real)));
  }
  text += row("peak of all", format_bytes(prepared.memory.peak), format_bytes(measured.peak),
              percent(static_cast<double>(prepared.memory.peak), static_cast<double>(measured.peak)));
  if (time.steps() == 0) return text;
  text += "time of a step  " + row("", "predicted", "measured", "difference").substr(18);
  for (const OpKind kind : kinds_of(prepared)) {
    text += row(std::string(name_of(kind)), format_seconds(of(predicted, kind)), format_seconds(time.of(kind)), percent(of(predicted, kind), time.of(kind)));
  }
  text += row("step", format_seconds(predicted.step), format_seconds(time.step()), percent(predicted.step, time.step()));
  return text;
}

std::string hosts_text(const Prepared& prepared, const Link& network) {
  char rate[64];
  std::snprintf(rate, sizeof rate, "%.2f Gbit/s", network.beta * 8 / 1e9);
  return std::to_string(prepared.config.ranks) + " ranks on " + std::to_string(host_count(prepared)) + " hosts; between them " + rate + " each way and " +
         format_seconds(network.alpha) + " for a small message, " + std::string(name_of(network.provenance)) + "; each sends " +
         format_bytes(static_cast<Bytes>(sent_between_hosts(prepared.train, prepared.host_of))) + " a step";
}

std::string report_json(const Prepared& prepared, const memory::Usage& measured, const SimReport& predicted, const TimeSums& time,
                        const Link& network) {
  std::ostringstream line;
  line.precision(9);
  line << R"({"event":"report","memory":{)";
  for (const Category category : {Category::kParams, Category::kGrads, Category::kOptimizer}) {
    const auto index = static_cast<std::size_t>(category);
    line << '"' << name_of(category) << R"(":{"predicted_bytes":)" << prepared.memory.category_peak[index] << R"(,"measured_bytes":)"
         << measured.category_peak[index] << "},";
  }
  line << R"("peak":{"predicted_bytes":)" << prepared.memory.peak << R"(,"measured_bytes":)" << measured.peak << R"(}},"time":{)";
  for (const OpKind kind : kinds_of(prepared)) {
    line << '"' << name_of(kind) << R"(":{"predicted_s":)" << of(predicted, kind) << R"(,"measured_s":)" << time.of(kind) << "},";
  }
  line << R"("step":{"predicted_s":)" << predicted.step << R"(,"measured_s":)" << time.step() << "}}";
  if (const int hosts = host_count(prepared); hosts > 1) {
    line << R"(,"network":{"hosts":)" << hosts << R"(,"kind":")" << name_of(network.kind) << R"(","Gbit_per_s":)" << network.beta * 8 / 1e9
         << R"(,"alpha_s":)" << network.alpha << R"(,"sent_bytes_a_step":)"
         << static_cast<Bytes>(sent_between_hosts(prepared.train, prepared.host_of)) << "}";
  }
  line << "}";
  return line.str();
}

}  // namespace wirewise
