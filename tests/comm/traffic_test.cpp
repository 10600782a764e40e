// What collectives send between hosts, as the interfaces of two network namespaces count it: the least that hierarchical algorithms need.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/namespaces.h"
#include "comm/needs_ucx.h"
#include "comm/ranks.h"
#include "wirewise/comm/ucx_network.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;

constexpr int kRanks = 4;  // two on each host
constexpr std::size_t kBytes = std::size_t{8} << 20;  // the larger of a rank's input and output

struct Traffic {
  const char* name;
  double first_host;  // bytes that a host sends, in units of kBytes, where the element is as wide as its partial sums
  double second_host;
  bool partials;  // half of it (all_reduce) or all of it (reduce_scatter) are partial sums
  std::function<void(Communicator&, DType, std::byte* in, std::byte* out)> call;
};

std::size_t elements(DType dtype) { return kBytes / size_of(dtype); }

/// Closed forms for two hosts of two ranks: between hosts the halves of a sum travel once there and once back; of a gather each host's
/// half; of a broadcast all, from the root's host; of an all-to-all the half of each of the two ranks' data.
const std::array<Traffic, 5> kTraffic = {{
    {"all_reduce", 1, 1, true,
     [](Communicator& comm, DType dtype, std::byte* in, std::byte* out) { comm.all_reduce({in, dtype}, {out, dtype}, elements(dtype)).wait(); }},
    {"reduce_scatter", 0.5, 0.5, true,
     [](Communicator& comm, DType dtype, std::byte* in, std::byte* out) {
       comm.reduce_scatter({in, dtype}, {out, dtype}, elements(dtype) / kRanks).wait();
     }},
    {"all_gather", 0.5, 0.5, false,
     [](Communicator& comm, DType dtype, std::byte* in, std::byte* out) {
       comm.all_gather({in, dtype}, {out, dtype}, elements(dtype) / kRanks).wait();
     }},
    {"broadcast", 1, 0, false,
     [](Communicator& comm, DType dtype, std::byte*, std::byte* out) { comm.broadcast({out, dtype}, elements(dtype), 1).wait(); }},
    {"all_to_all", 1, 1, false,
     [](Communicator& comm, DType dtype, std::byte* in, std::byte* out) {
       const std::vector<std::size_t> counts(kRanks, elements(dtype) / kRanks);
       comm.all_to_all({in, dtype}, counts, {out, dtype}, counts).wait();
     }},
}};

double least(const Traffic& traffic, DType dtype, int host) {
  const double share = host == 0 ? traffic.first_host : traffic.second_host;
  const bool wider = traffic.partials && size_of(dtype) == 2;  // float32 partial sums
  // An all-reduce sends partial sums there and rounded elements back.
  const double factor = !wider ? 1 : std::string(traffic.name) == "all_reduce" ? 1.5 : 2;
  return share * factor * static_cast<double>(kBytes);
}

TEST(TrafficBetweenHosts, IsTheLeastOfHierarchicalAlgorithms) {
  if (const std::string why = no_ucx_here(); !why.empty()) GTEST_SKIP() << why;
  const TwoHosts hosts;
  if (!hosts.made()) GTEST_SKIP() << "network namespaces need root and the ip command";
  const TemporaryFolder folder;
  const auto results = run_ranks(
      kRanks,
      [&](int rank) {
        const int host = rank / 2;
        hosts.enter(host);
        ::setenv("WIREWISE_NET", hosts.interface(host).c_str(), 1);
        const auto comm = make_communicator(std::make_shared<FileStore>(folder.path() / "store"), rank, kRanks, {20s});
        auto* const in = static_cast<std::byte*>(comm->allocate_shared(kBytes));
        auto* const out = static_cast<std::byte*>(comm->allocate_shared(kBytes));
        std::string wrong;
        for (const Traffic& traffic : kTraffic) {
          for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
            comm->barrier().wait();
            const std::uint64_t before = hosts.sent(host);
            const std::uint64_t again_before = TwoHosts::sent_again();
            comm->barrier().wait();
            traffic.call(*comm, dtype, in, out);
            comm->barrier().wait();
            const auto sent = static_cast<double>(hosts.sent(host) - before);
            const double wanted = least(traffic, dtype, host);
            // Where nothing is to be sent, there are still acknowledgements.
            const double tolerance = 0.05 * (wanted > 0 ? wanted : static_cast<double>(kBytes));
            // A busy machine makes TCP send segments again, which isn't the algorithm's traffic.
            const auto again = static_cast<double>(TwoHosts::sent_again() - again_before);
            if (sent < wanted || sent - again > wanted + tolerance) {
              wrong += std::string(traffic.name) + " of " + std::string(name_of(dtype)) + ": host " + std::to_string(host) + " sent " +
                       std::to_string(sent) + " bytes (" + std::to_string(again) + " at most again), not " + std::to_string(wanted) + "\n";
            }
            comm->barrier().wait();
          }
        }
        comm->free_shared(in);
        comm->free_shared(out);
        return wrong;
      },
      60s);
  expect_all_ok(results);
  for (const RankResult& result : results) EXPECT_EQ(result.output, "");
}

}  // namespace
}  // namespace wirewise
