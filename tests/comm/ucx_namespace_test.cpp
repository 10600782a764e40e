// Two network namespaces share boot id, /dev/shm and process memory: what the interfaces count tells whether UCX kept off them.
#include <gtest/gtest.h>

#include "comm/namespaces.h"
#include "comm/needs_ucx.h"
#include "comm/ranks.h"
#include "comm/wires.h"
#include "wirewise/comm/network_interface.h"

namespace wirewise {
namespace {

using namespace std::chrono_literals;

TEST(UcxBetweenHosts, EveryByteCrossesTheWire) {
  if (const std::string why = testing::no_ucx_here(); !why.empty()) GTEST_SKIP() << why;
  const testing::TwoHosts hosts;
  if (!hosts.made()) GTEST_SKIP() << "network namespaces need root and the ip command";

  // Also when the user's own settings ask for shared memory.
  for (const char* const transports : {"", "tcp,sm,self", "all"}) {
    constexpr std::size_t kBytes = 50 << 20;
    constexpr int kMessages = 4;
    const testing::Shared<testing::Board> board;
    const auto results = testing::run_ranks(2, [&](int rank) {
      hosts.enter(rank);
      if (*transports != 0) ::setenv("UCX_TLS", transports, 1);
      ::unsetenv("MASTER_ADDR");
      const comm::NetworkInterface interface = comm::network_interface();
      EXPECT_EQ(interface.name, hosts.interface(rank));
      EXPECT_EQ(interface.address, testing::TwoHosts::address(rank));
      const auto network = testing::join_network(*board, rank, 2, interface);
      const std::uint64_t before = hosts.sent(rank);
      const std::uint64_t again_before = testing::TwoHosts::sent_again();
      const auto data = testing::pattern(kBytes, 3);
      for (int i = 0; i < kMessages; ++i) {
        if (rank == 0) {
          testing::finish(*network, *network->send(1, 1, data.data(), kBytes));
        } else {
          std::vector<unsigned char> got(kBytes);
          testing::finish(*network, *network->recv(0, 1, got.data(), kBytes));
          EXPECT_EQ(got, data);
        }
      }
      board->barrier(1, 2);
      const std::uint64_t sent = hosts.sent(rank) - before;
      if (rank == 0) {
        EXPECT_GE(sent, kBytes * kMessages);
        const std::uint64_t again = testing::TwoHosts::sent_again() - again_before;  // on a busy machine
        EXPECT_LE(sent, kBytes * kMessages * 105 / 100 + again);  // headers
      } else {
        EXPECT_LE(sent, kBytes * kMessages / 20);  // acknowledgements
      }
      EXPECT_EQ(network->describe(), "tcp over " + hosts.interface(rank));
      return std::string();
    });
    for (const auto& result : results) EXPECT_TRUE(result.ok()) << "UCX_TLS=" << transports << ": " << result.output;
  }
}

}  // namespace
}  // namespace wirewise
