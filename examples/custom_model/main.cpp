// Trains a residual MLP of plain torch::nn modules with ZeRO-3, or any strategy named on the command line, on all ranks that a launcher starts:
//   wirewise launch --ranks 2 -- ./custom_model zero3
#include <torch/torch.h>
#include <wirewise/torch/trainer.h>

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t width)
      : up(register_module("up", torch::nn::Linear(width, 4 * width))), down(register_module("down", torch::nn::Linear(4 * width, width))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x + down(torch::gelu(up(x))); }
  torch::nn::Linear up, down;
};
TORCH_MODULE(Block);

int main(int argc, char** argv) try {
  const wirewise::World world = wirewise::join_world();
  torch::manual_seed(0);
  std::vector<wirewise::Unit> units{wirewise::unit("in", torch::nn::Linear(8, 128))};
  for (int i = 0; i < 4; ++i) units.push_back(wirewise::unit("block" + std::to_string(i), Block(128)));
  units.push_back(wirewise::unit("out", torch::nn::Linear(128, 1)));

  wirewise::TrainerOptions options;
  wirewise::apply_name(options.strategy, argc > 1 ? argv[1] : "zero3");
  wirewise::Trainer trainer(world, units, [](const auto& out, const auto& y) { return torch::mse_loss(out, y); }, options);

  torch::manual_seed(world.rank + 1);  // each rank draws its own samples
  for (int step = 1; step <= 200; ++step) {
    const auto x = torch::rand({64, 8});
    const auto loss = trainer.step(x, torch::sin(x.sum(1, true))).loss;
    if (world.rank == 0 && (step == 1 || step % 50 == 0)) std::printf("step %3d  loss %.5f\n", step, loss);
  }
  const auto hash = trainer.weights_sha256();
  const auto memory = trainer.memory();
  if (world.rank == 0) {
    std::printf("%s on %d ranks, weights %.16s\n", argc > 1 ? argv[1] : "zero3", world.size, hash.c_str());
    std::printf("peak memory %.2f MB predicted, %.2f MB measured\n", memory.predicted.peak / 1e6, memory.measured_peak / 1e6);
  }
} catch (const wirewise::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return wirewise::exit_code(error.kind());
}
