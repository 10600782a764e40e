// Wirewise's collectives through its C++ interface, timed as all contestants are: wirewise_collectives BUDGET CASE…, a case being
// OPERATION:BYTES. Started by `wirewise launch`. See README.md. A first line `limit READ WRITE COPY` tells the memory's speed with all
// ranks at once, in bytes a second, and each case has a fourth word: the least seconds that this speed allows.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bench/peers/cases.h"
#include "wirewise/base/error.h"
#include "wirewise/base/rank_env.h"
#include "wirewise/cli/bench_memory.h"
#include "wirewise/cli/bench_operation.h"
#include "wirewise/comm/communicator.h"
#include "wirewise/comm/store.h"

namespace {

using namespace wirewise;

double largest(Communicator& communicator, double own) {
  double all = 0;
  communicator.all_reduce({&own, DType::kFloat64}, {&all, DType::kFloat64}, 1, Reduction::kMax).wait();
  return all;
}

struct Call {
  Communicator& communicator;
  int op;
  std::size_t count;
  ConstBuffer in;
  Buffer out;
  std::vector<std::size_t> counts;
  CallOptions options;

  void operator()() const {
    switch (op) {
      case kAllReduce: communicator.all_reduce(out, out, count, Reduction::kSum, options).wait(); break;
      case kAllGather: communicator.all_gather(in, out, count, options).wait(); break;
      case kReduceScatter: communicator.reduce_scatter(in, out, count, Reduction::kSum, options).wait(); break;
      case kBroadcast: communicator.broadcast(out, count, 0, options).wait(); break;
      case kAllToAll: communicator.all_to_all(in, counts, out, counts, options).wait(); break;
      default: break;
    }
  }
};

/// The slowest rank's mean of `calls` calls.
double timed(const Call& call, int calls) {
  call.communicator.barrier().wait();
  const double begin = now_seconds();
  for (int i = 0; i < calls; ++i) call();
  return largest(call.communicator, (now_seconds() - begin) / calls);
}

constexpr bench::Op kOps[] = {bench::Op::kAllReduce, bench::Op::kAllGather, bench::Op::kReduceScatter, bench::Op::kBroadcast, bench::Op::kAllToAll};

void run_case(Communicator& communicator, const char* text, double budget, const bench::MemoryLimit& limit) {
  std::size_t bytes = 0;
  const int op = read_case(text, &bytes);
  if (op < 0 || budget <= 0) throw bad_input(std::string("can't run ") + text + ".");
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const std::size_t count = part_of(op, bytes, communicator.size());
  const std::size_t whole = (op == kAllReduce || op == kBroadcast ? 1 : ranks) * count;
  auto* const in = static_cast<float*>(communicator.allocate_shared(whole * sizeof(float)));
  auto* const out = static_cast<float*>(communicator.allocate_shared(whole * sizeof(float)));
  for (std::size_t i = 0; i < whole; ++i) in[i] = out[i] = 1e-9F;
  CallOptions options;
  options.progress = CallOptions::Progress::kOnWait;  // as MPI: the caller's thread does the work
  const Call call{communicator, op, count, {in, DType::kFloat32}, {out, DType::kFloat32}, std::vector<std::size_t>(ranks, count), options};
  for (int i = 0; i < warmup_calls(bytes); ++i) call();
  const double seconds = timed(call, timed_calls(timed(call, guess_calls(bytes)), budget));
  if (communicator.rank() == 0) {
    const bool in_place = op == kAllReduce || op == kBroadcast;
    const double least = bench::least_time(limit, bench::least_traffic(kOps[op], whole * sizeof(float), communicator.size(), in_place));
    std::printf("%s %zu %.9g %.9g\n", kNames[op], bytes, seconds, least);
    std::fflush(stdout);
  }
  communicator.free_shared(in);
  communicator.free_shared(out);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const RankEnvironment environment = read_rank_environment();
    if (environment.store.empty()) throw bad_input("there is no launcher.", "Start it with wirewise launch --ranks N -- wirewise_collectives ….");
    const auto communicator = make_communicator(std::make_shared<FileStore>(environment.store), environment.rank, environment.ranks);
    const bench::MemoryLimit limit = bench::measure_memory(*communicator);
    if (communicator->rank() == 0) std::printf("limit %.9g %.9g %.9g\n", limit.read, limit.write, limit.copy);
    const double budget = argc > 1 ? std::atof(argv[1]) : 0;
    for (int i = 2; i < argc; ++i) run_case(*communicator, argv[i], budget, limit);
    communicator->barrier().wait();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
