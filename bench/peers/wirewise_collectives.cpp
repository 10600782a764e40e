// Wirewise's collectives through its C++ interface, timed as all contestants are: wirewise_collectives BUDGET CASE…, a case being
// OPERATION:BYTES[:DTYPE]. Started by `wirewise launch`. See README.md. On one host a first line `limit READ WRITE COPY` tells the memory's
// speed with all ranks at once, in bytes a second, and each case has a fourth word: the least seconds that this speed allows. Across hosts
// the first line is `link ONE_WAY ALL_AT_ONCE`, and the words after the seconds are each rank's: bytes that its host sent in a call.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "bench/peers/cases.h"
#include "wirewise/base/error.h"
#include "wirewise/base/rank_env.h"
#include "wirewise/cli/bench_link.h"
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

/// Bytes that this host's interfaces have sent, but for the loopback.
double sent_by_host() {
  std::ifstream file("/proc/self/net/dev");
  std::string line;
  double sum = 0;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).ends_with(" lo") || line.substr(0, colon) == "lo") continue;
    double sent = 0;
    std::sscanf(line.c_str() + colon + 1, "%*s %*s %*s %*s %*s %*s %*s %*s %lf", &sent);
    sum += sent;
  }
  return sum;
}

/// The slowest rank's mean of `calls` calls.
double timed(const Call& call, int calls) {
  call.communicator.barrier().wait();
  const double begin = now_seconds();
  for (int i = 0; i < calls; ++i) call();
  return largest(call.communicator, (now_seconds() - begin) / calls);
}

constexpr bench::Op kOps[] = {bench::Op::kAllReduce, bench::Op::kAllGather, bench::Op::kReduceScatter, bench::Op::kBroadcast, bench::Op::kAllToAll};

void run_case(Communicator& communicator, const char* text, double budget, const bench::MemoryLimit& limit, bool across_hosts) {
  std::size_t bytes = 0;
  const int op = read_case(text, &bytes);
  if (op < 0 || budget <= 0) throw bad_input(std::string("can't run ") + text + ".");
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const char* const second = std::strchr(std::strchr(text, ':') + 1, ':');
  const DType dtype = second == nullptr ? DType::kFloat32 : parse_dtype(second + 1).value();
  const std::size_t count = part_of(op, bytes, communicator.size()) * sizeof(float) / size_of(dtype);
  const std::size_t whole = (op == kAllReduce || op == kBroadcast ? 1 : ranks) * count;
  void* const in = communicator.allocate_shared(whole * size_of(dtype));
  void* const out = communicator.allocate_shared(whole * size_of(dtype));
  for (void* const data : {in, out}) {
    for (std::size_t i = 0; i < whole * size_of(dtype) / 4; ++i) static_cast<std::uint32_t*>(data)[i] = 0x30893089;  // about 1e-9 in both
  }
  CallOptions options;
  options.progress = CallOptions::Progress::kOnWait;  // as MPI: the caller's thread does the work
  const Call call{communicator, op, count, {in, dtype}, {out, dtype}, std::vector<std::size_t>(ranks, count), options};
  for (int i = 0; i < warmup_calls(bytes); ++i) call();
  const int calls = timed_calls(timed(call, guess_calls(bytes)), budget);
  const double before = sent_by_host();
  const double seconds = timed(call, calls);
  if (across_hosts) {
    const double sent = (sent_by_host() - before) / calls;
    std::vector<double> all(ranks);
    communicator.all_gather({&sent, DType::kFloat64}, {all.data(), DType::kFloat64}, 1).wait();
    if (communicator.rank() == 0) {
      std::printf("%s %zu %.9g", kNames[op], bytes, seconds);
      for (const double of_host : all) std::printf(" %.0f", of_host);
      std::printf("\n");
    }
  } else if (communicator.rank() == 0) {
    const bool in_place = op == kAllReduce || op == kBroadcast;
    const double least = bench::least_time(limit, bench::least_traffic(kOps[op], whole * size_of(dtype), communicator.size(), in_place));
    std::printf("%s %zu %.9g %.9g\n", kNames[op], bytes, seconds, least);
  }
  std::fflush(stdout);
  communicator.free_shared(in);
  communicator.free_shared(out);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const RankEnvironment environment = read_rank_environment();
    // The launcher's on one host; a folder that all hosts see across several.
    const char* const shared = std::getenv("WIREWISE_STORE");
    if (shared == nullptr) throw bad_input("there is no launcher.", "Start it with wirewise launch --ranks N -- wirewise_collectives ….");
    const auto communicator = make_communicator(std::make_shared<FileStore>(shared), environment.rank, environment.ranks);
    bench::MemoryLimit limit;
    const bench::LinkLimit link = bench::measure_link(*communicator);
    const bool across_hosts = link.hosts > 1;
    if (across_hosts) {
      if (communicator->rank() == 0) std::printf("link %.9g %.9g\n", link.one_way, link.all_at_once);
    } else {
      limit = bench::measure_memory(*communicator);
      if (communicator->rank() == 0) std::printf("limit %.9g %.9g %.9g\n", limit.read, limit.write, limit.copy);
    }
    const double budget = argc > 1 ? std::atof(argv[1]) : 0;
    for (int i = 2; i < argc; ++i) run_case(*communicator, argv[i], budget, limit, across_hosts);
    communicator->barrier().wait();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
