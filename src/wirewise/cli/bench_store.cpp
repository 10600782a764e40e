// meet_ranks in a build without libtorch.
#ifndef WIREWISE_WITH_TORCH

#include "wirewise/cli/bench_store.h"

#include <chrono>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/listener.h"
#include "wirewise/comm/tcp_store.h"

namespace wirewise::bench {
namespace {

constexpr std::chrono::minutes kPatience{5};  // ranks of a large job don't start at once

std::shared_ptr<Store> open_store(const RankEnvironment& environment) {
  const std::vector<std::string> addresses = resolve(environment.master_addr, "MASTER_ADDR");
  const auto port = static_cast<std::uint16_t>(environment.master_port);
  if (environment.rank != 0) return std::make_shared<TcpStore>(wait_for_listener(addresses, port, kPatience), port, kPatience);
  if (is_loopback(addresses.front()) && environment.nodes > 1) {
    throw bad_input("MASTER_ADDR is '" + environment.master_addr + "', which is the loopback address " + addresses.front() +
                        " on rank 0's host, but ranks are on " + std::to_string(environment.nodes) + " hosts.",
                    "Give an address of rank 0's host that they can reach.");
  }
  return std::make_shared<TcpStore>(addresses.front(), Listener(addresses.front(), port, "MASTER_PORT"));
}

}  // namespace

std::shared_ptr<Store> meet_ranks(const RankEnvironment& environment) {
  if (!environment.store.empty() && environment.nodes == 1) return std::make_shared<FileStore>(environment.store);
  if (environment.agent_store) {
    throw bad_input("ranks of torchrun meet in its agent's store, and this wirewise was built without libtorch, which speaks with it.",
                    "Start them with srun, mpirun or wirewise launch, or build with -DWIREWISE_TORCH=ON -DWIREWISE_PYTHON=PYTHON, a Python that has torch.");
  }
  return std::make_shared<PrefixStore>(environment.job + "/", open_store(environment));
}

}  // namespace wirewise::bench

#endif
