// A communicator that a rank closes while slower peers are still in its last call.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "comm/ranks.h"
#include "wirewise/comm/phase.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;

struct Page {
  std::atomic<bool> closed{false};
};
Page* page = nullptr;  // that the ranks' processes share
std::atomic<bool> held{false};

/// Holds the rank in its next call, which its peers have heard of, until rank 0 has closed its communicator.
void hold(const char* phase) {
  if (std::strcmp(phase, "posted") != 0 || !held.exchange(false)) return;
  while (!page->closed.load()) std::this_thread::yield();
}

TEST(Close, PeersReadWhatARankLentThemThoughItHasLeft) {
  page = ::new (::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Page{};
  constexpr int kRanks = 4;  // counts of so many ranks don't fit into a call's cell
  expect_all_ok(run_communicators(kRanks, [](Communicator& world) -> std::string {
    const int me = world.rank();
    auto part = world.split(0, me);
    // Rank 0 gives and takes nothing, so it is done when all have called.
    std::vector<std::size_t> counts(kRanks, me == 0 ? 0 : 3);
    counts[0] = 0;
    std::vector<float> in(kRanks * 3, static_cast<float>(me)), out(kRanks * 3, -1.0F);
    if (me == 1) {
      comm::phase_hook.store(&hold);
      held.store(true);
    }
    part->all_to_all({in.data(), DType::kFloat32}, counts, {out.data(), DType::kFloat32}, counts).wait();
    part.reset();
    if (me == 0) {
      // What is free by now is written over.
      std::vector<void*> blocks;
      for (int i = 0; i < 64; ++i) {
        blocks.push_back(world.allocate_shared(4096));
        std::memset(blocks.back(), 0x55, 4096);
      }
      page->closed.store(true);
      for (void* const block : blocks) world.free_shared(block);
    }
    comm::phase_hook.store(nullptr);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float expected = me == 0 || i >= 9 ? -1.0F : static_cast<float>(1 + i / 3);
      EXPECT_EQ(out[i], expected) << "rank " << me << ", element " << i;
    }
    world.barrier().wait();
    return "";
  }));
  ::munmap(page, sizeof(Page));
}

}  // namespace
}  // namespace wirewise
