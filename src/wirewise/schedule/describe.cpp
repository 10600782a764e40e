// Ops in words, for reports and errors.
#include "wirewise/schedule/schedule.h"

namespace wirewise {
namespace {

std::string list_groups(const Op& op, const Model& model) {
  std::string text;
  for (std::size_t i = 0; i < op.param_groups.size(); ++i) {
    const auto group = static_cast<std::size_t>(op.param_groups[i]);
    text += i == 0 ? " " : ", ";
    text += group < model.groups.size() ? model.groups[group].name : "group " + std::to_string(group);
  }
  return text;
}

}  // namespace

std::string describe(const Op& op, const Model& model) {
  std::string text(name_of(op.kind));
  const auto unit = static_cast<std::size_t>(op.unit);
  if (!op.param_groups.empty()) {
    text += list_groups(op, model);
  } else if (op.unit >= 0 && unit < model.units.size()) {
    const auto& shape = model.units[unit];
    const auto segment = static_cast<std::size_t>(op.segment);
    text += " " + shape.name;
    // A unit of one segment of the same name says it once.
    if (op.segment >= 0 && segment < shape.segments.size() && shape.segments[segment].name != shape.name) {
      text += " " + shape.segments[segment].name;
    }
  }
  if (op.micro_batch >= 0) text += ", micro-batch " + std::to_string(op.micro_batch);
  return text;
}

}  // namespace wirewise
