// One rank's training step with everything but communication: whole weights (as if gathered beforehand), gradients kept local, its shard
// stepped. Two of these at once are what ZeRO-3 would be if its wires were free.
//
// no_communication RANK STEPS: prints the median seconds of a step, the first left out.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "wirewise/base/philox.h"
#include "wirewise/torch/executor.h"
#include "wirewise/torch/memory.h"

namespace {

using namespace wirewise;

/// Two ranks of which only one is there: gathers move nothing, reductions convert this rank's own slice.
class NoCommunication final : public Communicator {
 public:
  explicit NoCommunication(int rank) : rank_(rank), local_(std::move(make_thread_communicators(1).front())) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return 2; }
  Work all_reduce(std::span<const ReducePart> parts, Reduction op, CallOptions options) override { return local_->all_reduce(parts, op, options); }
  Work all_gather(std::span<const AllGatherPart>, CallOptions) override { return {}; }
  Work reduce_scatter(std::span<const ReducePart> parts, Reduction op, CallOptions options) override {
    std::vector<ReducePart> own(parts.begin(), parts.end());
    for (ReducePart& part : own) {
      part.in.data = static_cast<const char*>(part.in.data) + static_cast<std::size_t>(rank_) * part.count * size_of(part.in.dtype);
    }
    return local_->all_reduce(own, op, options);
  }
  Work broadcast(Buffer, std::size_t, int, CallOptions) override { return {}; }
  Work reduce(ConstBuffer, Buffer, std::size_t, int, Reduction, CallOptions) override { return {}; }
  Work gather(ConstBuffer, Buffer, std::size_t, int, CallOptions) override { return {}; }
  Work scatter(ConstBuffer, Buffer, std::size_t, int, CallOptions) override { return {}; }
  Work all_to_all(ConstBuffer, std::span<const std::size_t>, Buffer, std::span<const std::size_t>, CallOptions) override { return {}; }
  Work send(ConstBuffer, std::size_t, int, int, CallOptions) override { return {}; }
  Work recv(Buffer, std::size_t, int, int, CallOptions) override { return {}; }
  Work barrier(CallOptions) override { return {}; }
  void progress() override {}
  std::unique_ptr<Communicator> split(int, int, CommunicatorOptions) override { return nullptr; }
  void abort(const std::string&) noexcept override {}
  void* allocate_shared(std::size_t bytes) override { return local_->allocate_shared(bytes); }
  void free_shared(void* pointer) noexcept override { local_->free_shared(pointer); }
  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;

 private:
  int rank_;
  std::unique_ptr<Communicator> local_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  memory::install();
  at::set_num_threads(1);
  const int rank = std::atoi(argv[1]);
  const int steps = std::atoi(argv[2]);
  Strategy strategy;
  strategy.zero = 2;  // whole weights, sharded optimizer
  resolve(strategy, 2);
  ModelConfig config{Family::kGpt2, 12, 768, 12, 12, 3072, 50304, 256, false, 1e-5, 10000};
  const Model model = build_model(config, {2, 256, DType::kBFloat16, false}, 2);
  const Schedule schedule = build_train_schedule(model, strategy, 2, {false, true});
  const auto communicator = std::make_shared<NoCommunication>(rank);
  const Lanes lanes{communicator, communicator, communicator};
  const SegmentTable segments = make_segment_table(model);
  ModelState state(model, strategy, schedule.programs[0], lanes);
  state.initialize(1);
  Executor executor(model, schedule.programs[0], segments, state, lanes, {});
  std::vector<double> seconds;
  for (int step = 0; step < steps; ++step) {
    std::vector<std::int32_t> tokens, targets;
    for (std::uint64_t i = 0; i < 512; ++i) {
      tokens.push_back(static_cast<std::int32_t>(random_bits(1, 1, i) % 50304));
      targets.push_back(static_cast<std::int32_t>(random_bits(1, 2, i) % 50304));
    }
    StepOptions options;
    options.step = step + 1;
    options.lr = 1e-4;
    const MicroBatch batch = token_micro_batch(2, 256, tokens, targets);
    executor.train(std::span(&batch, 1), options);
    if (step > 0) seconds.push_back(executor.timeline().step);
  }
  std::sort(seconds.begin(), seconds.end());
  std::printf("%.6f\n", seconds[seconds.size() / 2]);
  return 0;
}
