// What a long run leaves behind: no files, mappings or memory; and what asks for too much memory is told.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "comm/error_text.h"
#include "comm/open_files.h"
#include "comm/ranks.h"
#include "wirewise/base/error.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;

std::size_t lines_of_maps() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

std::size_t resident_pages() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return resident;
}

TEST(LongRun, KeepsFilesMappingsAndMemoryFlat) {
  constexpr int kSteps = 2000 / kPatience;
  expect_all_ok(run_communicators(2, [](Communicator& comm) {
    std::vector<float> own(20'000, 1.0F);
    const auto step = [&](int i) {
      // Buffers come and go, as in training; so do groups.
      const std::size_t count = 50'000 + static_cast<std::size_t>(i % 7) * 10'000;
      auto* const data = static_cast<float*>(comm.allocate_shared(count * 4));
      std::fill_n(data, count, 1.0F);
      comm.all_reduce({data, DType::kFloat32}, {data, DType::kFloat32}, count).wait();
      EXPECT_EQ(data[count - 1], 2.0F);
      comm.all_reduce({own.data(), DType::kFloat32}, {own.data(), DType::kFloat32}, own.size(), Reduction::kAverage).wait();
      Work sent = comm.send({own.data(), DType::kFloat32}, 5000, 1 - comm.rank(), i);
      std::vector<float> in(5000);
      comm.recv({in.data(), DType::kFloat32}, 5000, 1 - comm.rank(), i).wait();
      sent.wait();
      if (i % 20 == 0) comm.split(0, 0)->barrier().wait();
      comm.free_shared(data);
    };
    for (int i = 0; i < kSteps / 10; ++i) step(i);
    comm.barrier().wait();
    const std::size_t files = open_files();
    const std::size_t maps = lines_of_maps();
    const std::size_t pages = resident_pages();
    for (int i = 0; i < kSteps; ++i) step(i);
    comm.barrier().wait();
    EXPECT_EQ(open_files(), files);
    EXPECT_LE(lines_of_maps(), maps + 2);
    if (!kAddressSanitizer && !kThreadSanitizer) {  // which keep what is freed
      EXPECT_LE(resident_pages(), pages + 500) << "of 4 KiB";
    }
    return std::string();
  }));
}

TEST(LongRun, ThousandsOfAllocationsNeedNoDescriptors) {
  expect_all_ok(run_communicators(2, [](Communicator& comm) {
    const rlimit few{64, 64};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    std::vector<char*> blocks;
    for (int i = 0; i < 3000; ++i) {
      blocks.push_back(static_cast<char*>(comm.allocate_shared(100)));
      *blocks.back() = static_cast<char>(i);
    }
    for (std::size_t i = 0; i < blocks.size(); i += 100) {
      comm.broadcast({blocks[i], DType::kInt8}, 100, 0).wait();
      EXPECT_EQ(*blocks[i], static_cast<char>(i));
    }
    return std::string();
  }));
}

TEST(SharedMemory, MoreThanTheMachineHasIsAnErrorThatSaysSo) {
  const auto communicators = make_thread_communicators(1);
  const std::string text = kind_and_text([&] { static_cast<void>(communicators[0]->allocate_shared(std::size_t{1} << 46)); });
  EXPECT_TRUE(contains(text, kind(ErrorKind::kFailed)) && contains(text, "64.00 TiB is more than") && contains(text, "ulimit -v")) << text;
  if (!kThreadSanitizer) {  // which leaves it fewer addresses than the machine has memory
    const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
    const std::string full = kind_and_text([&] { static_cast<void>(communicators[0]->allocate_shared(pages * 4096)); });
    EXPECT_TRUE(contains(full, kind(ErrorKind::kFailed)) && contains(full, "are left")) << full;
  }
  // It still works afterwards.
  void* const pointer = communicators[0]->allocate_shared(10);
  EXPECT_NE(pointer, nullptr);
  communicators[0]->free_shared(pointer);
}

}  // namespace
}  // namespace wirewise
