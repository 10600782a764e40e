// Collectives on device memory through host memory: the same bytes as the host's collectives, however late the device's copies come.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "comm/host_device.h"
#include "comm/numbers.h"
#include "comm/ranks.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/staged_communicator.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using Bytes = std::vector<std::byte>;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

Bytes random_floats(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  Bytes bytes(count * 4);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = draw(random);
    std::memcpy(bytes.data() + i * 4, &value, 4);
  }
  return bytes;
}

/// What a rank's memory holds after every operation, by `comm`, in and out of place.
std::vector<Bytes> everything(Communicator& comm, std::size_t count) {
  const auto n = at(comm.size());
  const auto r = at(comm.rank());
  const DType f = DType::kFloat32;
  const Bytes own = random_floats(n * count, 7 + static_cast<unsigned>(r));
  std::vector<Bytes> results;
  const auto keep = [&](Bytes out) { results.push_back(std::move(out)); };
  for (const Reduction op : {Reduction::kSum, Reduction::kAverage, Reduction::kMax}) {
    Bytes out(count * 4);
    comm.all_reduce({own.data(), f}, {out.data(), f}, count, op).wait();
    keep(out);
    Bytes in_place = own;
    comm.all_reduce({in_place.data(), f}, {in_place.data(), f}, count, op).wait();
    keep(in_place);
    comm.reduce_scatter({own.data(), f}, {out.data(), f}, count, op).wait();
    keep(out);
    comm.reduce({own.data(), f}, {comm.rank() == 1 ? out.data() : nullptr, f}, count, 1, op).wait();
    keep(out);
  }
  {
    Bytes sums = random_floats(count, 3);
    CallOptions options;
    options.accumulate = true;
    comm.reduce_scatter({own.data(), DType::kBFloat16}, {sums.data(), f}, count, Reduction::kSum, options).wait();
    keep(sums);
  }
  {
    Bytes a(n * count * 4), b(n * count * 8);
    std::copy_n(own.begin(), count * 8 < own.size() ? count * 8 : own.size(), b.begin() + static_cast<std::ptrdiff_t>(r * count * 8));
    const AllGatherPart parts[] = {{{own.data(), f}, {a.data(), f}, count},
                                   {{b.data() + r * count * 8, DType::kFloat64}, {b.data(), DType::kFloat64}, count}};
    comm.all_gather(parts).wait();
    keep(a);
    keep(b);
  }
  {
    Bytes data = own;
    comm.broadcast({data.data(), f}, count, 1).wait();
    keep(data);
    Bytes all(n * count * 4);
    comm.gather({own.data(), f}, {comm.rank() == 0 ? all.data() : nullptr, f}, count, 0).wait();
    keep(all);
    Bytes mine(count * 4);
    comm.scatter({comm.rank() == 0 ? own.data() : nullptr, f}, {mine.data(), f}, count, 0).wait();
    keep(mine);
  }
  {
    std::vector<std::size_t> sends, recvs;  // rank i sends i + j elements to rank j
    std::size_t out = 0;
    for (std::size_t j = 0; j < n; ++j) {
      sends.push_back(std::min(count, r + j));
      recvs.push_back(std::min(count, r + j));
      out += recvs.back();
    }
    Bytes received(out * 4);
    comm.all_to_all({own.data(), f}, sends, {received.data(), f}, recvs).wait();
    keep(received);
  }
  {
    // Each receives before it sends: neither may wait for the other in the queue.
    Bytes message(count * 4);
    const int next = (comm.rank() + 1) % comm.size(), previous = (comm.rank() + comm.size() - 1) % comm.size();
    Work received = comm.recv({message.data(), f}, count, previous, 9);
    Work sent = comm.send({own.data(), f}, count, next, 9);
    received.wait();
    sent.wait();
    keep(message);
  }
  comm.barrier().wait();
  return results;
}

TEST(StagedCommunicator, GivesTheBytesOfTheHostsCollectives) {
  for (const int ranks : {2, 3}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{70'001}}) {
      expect_no_errors(run_threads(ranks, [&](Communicator& host) {
        const auto device = std::make_shared<HostDevice>();
        {
          const auto staged = make_staged_communicator(host.split(0, host.rank()), device);
          EXPECT_EQ(everything(*staged, count), everything(host, count));
        }
        EXPECT_EQ(device->pinned(), 0U);
      }));
    }
  }
}

TEST(StagedCommunicator, RunsOperationsSideBySideInTheOrderOfTheirCalls) {
  expect_no_errors(run_threads(2, [](Communicator& host) {
    const auto staged = make_staged_communicator(host.split(0, host.rank()), std::make_shared<HostDevice>(10));
    constexpr int kCalls = 100;
    std::vector<std::int64_t> in(kCalls), out(kCalls);
    std::vector<Work> works;
    for (int i = 0; i < kCalls; ++i) {
      in[at(i)] = i * (staged->rank() + 1);
      works.push_back(staged->all_reduce({&in[at(i)], DType::kInt64}, {&out[at(i)], DType::kInt64}, 1));
    }
    for (int i = kCalls; i-- > 0;) {
      works[at(i)].wait();
      EXPECT_EQ(out[at(i)], i * 3);
      EXPECT_TRUE(works[at(i)].test());
    }
    std::atomic<int> told{0};
    Work last = staged->barrier();
    last.then([&](const std::exception_ptr& error) { told = error == nullptr ? 1 : 2; });
    last.wait();
    while (told == 0) std::this_thread::yield();  // callbacks run on the worker, which may still be at it
    EXPECT_EQ(told, 1);
  }));
}

TEST(StagedCommunicator, SplitsAfterTheCallsBeforeIt) {
  expect_no_errors(run_threads(4, [](Communicator& host) {
    const auto staged = make_staged_communicator(host.split(0, host.rank()), std::make_shared<HostDevice>(50));
    std::int64_t one = 1, all = 0, half = 0;
    Work whole = staged->all_reduce({&one, DType::kInt64}, {&all, DType::kInt64}, 1);
    const auto part = staged->split(staged->rank() % 2, staged->rank());
    part->all_reduce({&one, DType::kInt64}, {&half, DType::kInt64}, 1).wait();
    whole.wait();
    EXPECT_EQ(all, 4);
    EXPECT_EQ(half, 2);
    EXPECT_EQ(staged->split(-1, 0), nullptr);
  }));
}

TEST(StagedCommunicator, FailsAtTheDeadlineWhenThePeerStaysAway) {
  expect_no_errors(run_threads(2, [](Communicator& host) {
    const auto staged = make_staged_communicator(host.split(0, host.rank()), std::make_shared<HostDevice>());
    if (host.rank() == 0) {
      CallOptions options;
      options.timeout = std::chrono::milliseconds(200);
      std::int32_t value = 1;
      try {
        staged->all_reduce({&value, DType::kInt32}, {&value, DType::kInt32}, 1, Reduction::kSum, options).wait();
        ADD_FAILURE() << "it ended without a peer";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kTimeout) << error.what();
      }
    }
    host.barrier().wait();  // the peer leaves no sooner
  }));
}

TEST(StagedCommunicator, FailsAtTheDeadlineWhenTheDeviceNeverDelivers) {
  /// Copies up that never end would keep a communicator from closing, as a device that hangs keeps a process; so this one recovers.
  struct Recovering final : DeviceEvent {
    explicit Recovering(std::atomic<bool>& well) : well_(well) {}
    bool passed() override { return well_; }
    std::atomic<bool>& well_;
  };
  struct NoStream final : DeviceStream {
    explicit NoStream(std::atomic<bool>& well) : well_(well) {}
    void follow_current() override {}
    void copy_to_host(void*, const void*, std::size_t) override {}
    void copy_to_device(void*, const void*, std::size_t) override {}
    std::unique_ptr<DeviceEvent> record() override { return std::make_unique<Recovering>(well_); }
    std::atomic<bool>& well_;
  };
  struct Stuck final : Accelerator {
    int index() const noexcept override { return 0; }
    std::string describe() const override { return "stuck"; }
    void* allocate(std::size_t) override { return nullptr; }
    void free(void*) noexcept override {}
    void pin(void*, std::size_t) override {}
    void unpin(void*) noexcept override {}
    std::unique_ptr<DeviceStream> make_stream() override { return std::make_unique<NoStream>(well); }
    void make_current() override {}
    void synchronize() override {}
    std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Store>, int, int, CommunicatorOptions) override { return nullptr; }
    std::atomic<bool> well{false};
  };
  expect_no_errors(run_threads(1, [](Communicator& host) {
    const auto device = std::make_shared<Stuck>();
    const auto staged = make_staged_communicator(host.split(0, 0), device);
    std::int32_t value = 1;
    CallOptions options;
    options.timeout = std::chrono::milliseconds(100);
    options.label = "sum of losses";
    try {
      staged->all_reduce({&value, DType::kInt32}, {&value, DType::kInt32}, 1, Reduction::kSum, options).wait();
      ADD_FAILURE() << "it ended without its inputs";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
      EXPECT_NE(std::string(error.what()).find("sum of losses"), std::string::npos) << error.what();
    }
    device->well = true;
  }));
}

TEST(StagedCommunicator, ReusesPinnedMemoryAndGivesAllBack) {
  expect_no_errors(run_threads(2, [](Communicator& host) {
    const auto device = std::make_shared<HostDevice>(0);
    {
      const auto staged = make_staged_communicator(host.split(0, host.rank()), device);
      std::vector<float> data(5000, 1.0F);
      for (int i = 0; i < 20; ++i) staged->all_reduce({data.data(), DType::kFloat32}, {data.data(), DType::kFloat32}, data.size()).wait();
      EXPECT_EQ(device->pins, 1);
      EXPECT_NE(staged->allocate_shared(100), nullptr);
      staged->free_shared(staged->allocate_shared(200));
      EXPECT_EQ(device->allocated, 1);
    }
    EXPECT_EQ(device->pinned(), 0U);
    EXPECT_EQ(device->allocated, 0);
  }));
}

TEST(StagedCommunicator, FailsWhatIsInFlightWhenItIsAbortedOrClosed) {
  for (const bool close : {false, true}) {
    const auto errors = run_threads(2, [&](Communicator& host) {
      auto staged = make_staged_communicator(host.split(0, host.rank()), std::make_shared<HostDevice>());
      if (host.rank() == 0) {
        std::int32_t value = 1;
        Work work = staged->all_reduce({&value, DType::kInt32}, {&value, DType::kInt32}, 1);
        if (close) {
          staged.reset();
        } else {
          staged->abort("enough");
        }
        EXPECT_THROW(work.wait(), Error);
      }
      host.barrier().wait();
    });
    expect_no_errors(errors);
  }
}

}  // namespace
}  // namespace wirewise
