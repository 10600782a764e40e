// The entries: a plain program, the passes that the strategy asks for, the proof.
#include "wirewise/base/error.h"
#include "wirewise/schedule/builder.h"
#include "wirewise/schedule/passes.h"
#include "wirewise/schedule/schedule.h"

namespace wirewise {
namespace {

Schedule one_role(Program program, const Strategy& strategy, int ranks, int micro_batches) {
  Schedule schedule;
  schedule.programs.push_back(std::move(program));
  schedule.strategy = strategy;
  schedule.ranks = ranks;
  schedule.micro_batches = micro_batches;
  return schedule;
}

}  // namespace

Schedule build_train_schedule(const Model& model, const Strategy& strategy, int ranks, const TrainOptions& options) {
  require_buildable(model, strategy, ranks);
  if (wide_gradients(strategy) && !model.batch.separate_gradient) {
    throw bad_input("the model's costs are without room for a separate gradient, but " + std::to_string(strategy.accumulation) +
                        " micro-batches add up in float32.",
                    "Build the model with BatchShape::separate_gradient.");
  }
  Program program = plain_train_program(model, strategy, options);
  if (is_aliased(strategy)) program = alias(std::move(program));
  program = bucket(std::move(program), strategy.bucket);
  program = prefetch(std::move(program), strategy.prefetch);
  if (strategy.prefetch > 0) program = overlap(std::move(program));
  Schedule schedule = one_role(std::move(program), strategy, ranks, strategy.accumulation);
  check(schedule);
  return schedule;
}

Schedule build_forward_schedule(const Model& model, const Strategy& strategy, int ranks) {
  require_buildable(model, strategy, ranks);
  Program program = plain_forward_program(model, strategy);
  if (is_aliased(strategy)) program = alias(std::move(program));
  program = prefetch(std::move(program), strategy.prefetch);
  Schedule schedule = one_role(std::move(program), strategy, ranks, 1);
  check(schedule);
  return schedule;
}

}  // namespace wirewise
