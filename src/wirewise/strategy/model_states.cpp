// ZeRO's memory formula, arXiv:1910.02054 section 5: what each stage leaves of the model states on a rank.
#include "wirewise/base/error.h"
#include "wirewise/strategy/strategy.h"

namespace wirewise {

ModelStateBytes zero_model_states(int zero, double parameters, int shards, double weight_bytes, double gradient_bytes,
                                  double optimizer_bytes) {
  if (zero < 0 || zero > 3) throw bad_input("ZeRO has no stage " + std::to_string(zero) + ".", "Use 0, 1, 2 or 3.");
  if (shards < 1) throw bad_input("model states can't be held in " + std::to_string(shards) + " shards.", "Use 1 shard or more.");
  const auto held = [&](int sharded_from) { return zero >= sharded_from ? parameters / shards : parameters; };
  return {held(3) * weight_bytes, held(2) * gradient_bytes, held(1) * optimizer_bytes};
}

}  // namespace wirewise
