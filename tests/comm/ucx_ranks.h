// Ranks that are processes, joined by the network over UCX on the loopback interface.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "comm/needs_ucx.h"
#include "comm/ranks.h"
#include "comm/wires.h"
#include "wirewise/comm/ucx_network.h"

namespace wirewise::testing {

class UcxNetwork : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_ucx_here(); !why.empty()) GTEST_SKIP() << why;
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
