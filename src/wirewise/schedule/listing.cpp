#include "wirewise/schedule/listing.h"

#include <algorithm>

namespace wirewise {
namespace {

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

std::string aligned_right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

/// Frees say which kind of buffer goes: parameters and gradients of one group have different ends.
std::string words(const Op& op, const Program& program, const Model& model) {
  std::string text = describe(op, model);
  if (op.kind == OpKind::kFree && !op.frees.empty()) {
    const auto role = name_of(program.buffers[static_cast<std::size_t>(op.frees.front())].role);
    text.insert(name_of(OpKind::kFree).size(), " " + std::string(role));
  }
  return text;
}

}  // namespace

std::string list_program(const Program& program, const Model& model) {
  std::size_t widest = 0;
  for (const auto& op : program.ops) widest = std::max(widest, words(op, program, model).size());
  const auto report = memory_walk(program);
  std::string text;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    std::string after;
    for (OpId id : op.after) after += (after.empty() ? "after " : ", ") + std::to_string(id);
    std::string line = aligned_right(std::to_string(i), 4) + "  " + padded(std::string(name_of(op.lane)), 7) + "  " +
                       padded(words(op, program, model), widest) + "  " + padded(std::move(after), 12) +
                       aligned_right(format_bytes(report.live_after[i]), 12);
    text += line + "\n";
  }
  return text;
}

}  // namespace wirewise
