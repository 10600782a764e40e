// Ranks that are processes, joined by the network over UCX on the loopback interface.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "comm/ranks.h"
#include "comm/wires.h"
#include "wirewise/comm/ucx_network.h"

namespace wirewise::testing {

class UcxNetwork : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "UCX isn't built for the thread sanitizer";
#else
    // Asked in a child: ranks are forked, and UCX must not have started its threads before.
    const auto asked = run_ranks(1, [](int) { return comm::why_no_ucx(); });
    if (!asked[0].output.empty()) GTEST_SKIP() << asked[0].output;
#endif
  }

  /// Runs body(network, rank, board) in `ranks` processes; every one must end well, save `mortal`.
  void run(int ranks, const std::function<void(comm::Network&, int, Board&)>& body, int mortal = -1) {
    const Shared<Board> board;
    const auto results = run_ranks(ranks, [&](int rank) {
      const auto network = join_network(*board, rank, ranks, loopback());
      body(*network, rank, *board);
      return std::string();
    });
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == mortal) continue;
      const auto& result = results[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(result.ok()) << "rank " << rank << ": exit " << result.exit_code << " signal " << result.signal
                               << (result.late ? " late " : " ") << result.output;
    }
  }
};

}  // namespace wirewise::testing
