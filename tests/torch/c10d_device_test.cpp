// Tensors of a device on the backend: the same bits as on the CPU, in one order with the CPU's calls, finished when the handle says so, however
// late the device's copies come. The device is made of host memory; nothing here needs one.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "c10d_ranks.h"
#include "comm/host_device.h"
#include "pretend_device.h"
#include "wirewise/torch/c10d_backend.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;

const c10::Device kCpu = c10::kCPU;

/// Backends whose devices are late by `questions` of each rank's own.
std::vector<BackendPtr> make_device_ranks(const std::vector<int>& questions, std::chrono::milliseconds timeout = 30s) {
  std::vector<BackendPtr> backends;
  auto communicators = make_thread_communicators(static_cast<int>(questions.size()));
  for (std::size_t rank = 0; rank < questions.size(); ++rank) {
    const OpenDevice open = [late = questions[rank]](c10::Device) { return std::make_shared<HostDevice>(late); };
    backends.push_back(c10::make_intrusive<WirewiseBackend>(std::move(communicators[rank]), timeout, open));
  }
  return backends;
}

at::Tensor numbers(int rank, std::int64_t count, c10::ScalarType type) {
  const at::Tensor whole = at::arange(count, at::kLong).remainder(5) + (rank + 1);
  if (c10::isComplexType(type)) return at::complex(whole.to(at::kDouble) / 3, whole.to(at::kDouble) * -2).to(type);
  return c10::isFloatingType(type) ? (whole.to(at::kDouble) / 3).to(type) : whole.to(type);
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& tensor) { return tensor.to(kCpu).contiguous().view({-1}).view(at::kByte); };
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && at::equal(bytes(a), bytes(b));
}

/// What every operation leaves in a rank's tensors, which lie on `device`.
Tensors everything(WirewiseBackend& backend, int rank, std::int64_t count, c10::ScalarType type, c10::Device device) {
  const int n = backend.getSize();
  const auto ranks = static_cast<std::size_t>(n);
  Tensors kept;
  const auto own = [&](int seed = 0) { return numbers(rank + seed, count, type).to(device); };
  const auto blank = [&](std::int64_t elements) { return at::zeros({elements}, type).to(device); };
  const auto keep = [&](const Tensors& tensors) {
    for (const at::Tensor& tensor : tensors) kept.push_back(tensor.to(kCpu).clone());
  };
  const auto one = [&](auto&& call) {
    Tensors tensor{own()};
    call(tensor)->wait();
    keep(tensor);
  };
  c10d::BroadcastOptions from_one;
  from_one.rootRank = 1;
  one([&](Tensors& t) { return backend.broadcast(t, from_one); });
  one([&](Tensors& t) { return backend.allreduce(t, {}); });
  c10d::ReduceOptions to_one;
  to_one.rootRank = 1;
  Tensors reduced{own()};
  backend.reduce(reduced, to_one)->wait();
  if (rank == 1) keep(reduced);  // on others it is undefined
  Tensors several{own(), own(3)};
  backend.allreduce_coalesced(several, {})->wait();
  keep(several);

  at::Tensor mine = own();
  at::Tensor full = blank(n * count);
  backend._allgather_base(full, mine, {})->wait();
  keep({full});
  at::Tensor shard = blank(count);
  backend._reduce_scatter_base(shard, full, {})->wait();
  keep({shard});
  Tensors fulls{blank(n * count), blank(n * count)}, shards{own(), own(1)};
  backend.allgather_into_tensor_coalesced(fulls, shards, {})->wait();
  keep(fulls);
  backend.reduce_scatter_tensor_coalesced(shards, fulls, {})->wait();
  keep(shards);

  std::vector<Tensors> lists(1);
  for (std::size_t r = 0; r < ranks; ++r) lists[0].push_back(blank(count));
  Tensors input{own()};
  backend.allgather(lists, input, {})->wait();
  keep(lists[0]);
  Tensors output{blank(count)};
  backend.reduce_scatter(output, lists, {})->wait();
  keep(output);
  std::vector<Tensors> uneven(1);
  for (int r = 0; r < n; ++r) uneven[0].push_back(blank(count + r));
  Tensors longer{numbers(rank, count + rank, type).to(device)};
  backend.allgather(uneven, longer, {})->wait();
  keep(uneven[0]);
  Tensors part{blank(count + rank)};
  backend.reduce_scatter(part, uneven, {})->wait();
  keep(part);
  std::vector<Tensors> by_rank;
  for (int r = 0; r < n; ++r) by_rank.push_back({blank(count), blank(count)});
  Tensors pair{own(), own(2)};
  backend.allgather_coalesced(by_rank, pair, {})->wait();
  for (const Tensors& list : by_rank) keep(list);

  std::vector<Tensors> gathered, scattered;
  if (rank == 0) {
    gathered.resize(1);
    for (std::size_t r = 0; r < ranks; ++r) gathered[0].push_back(blank(count));
  }
  backend.gather(gathered, input, {})->wait();
  if (rank == 0) keep(gathered[0]);
  if (rank == 0) scattered = gathered;
  Tensors got{blank(count)};
  backend.scatter(got, scattered, {})->wait();
  keep(got);

  std::vector<std::int64_t> even, sends, recvs;
  at::Tensor mixed = blank(n * count);
  backend.alltoall_base(mixed, full, even, even, {})->wait();
  keep({mixed});
  std::int64_t total = 0;
  for (int r = 0; r < n; ++r) {
    sends.push_back(rank + r);
    recvs.push_back(rank + r);
    total += rank + r;
  }
  at::Tensor out = blank(total), in = numbers(rank, total, type).to(device);
  backend.alltoall_base(out, in, recvs, sends, {})->wait();
  keep({out});
  Tensors ins, outs;
  for (std::size_t r = 0; r < ranks; ++r) {
    ins.push_back(own(static_cast<int>(r)));
    outs.push_back(blank(count));
  }
  backend.alltoall(outs, ins, {})->wait();
  keep(outs);

  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  Tensors received{blank(count)}, anybody{blank(count)}, mail{own()};
  const auto sent = backend.send(mail, next, 4);
  const auto came = backend.recv(received, previous, 4);
  came->wait();
  sent->wait();
  EXPECT_EQ(came->sourceRank(), previous);
  const auto again = backend.send(mail, next, 5);
  const auto from = backend.recvAnysource(anybody, 5);
  from->wait();
  again->wait();
  EXPECT_EQ(from->sourceRank(), previous);
  keep({received[0], anybody[0]});

  if (type == at::kFloat && count > 0) {
    c10d::AllreduceOptions scaled;
    scaled.reduceOp = c10d::makeNCCLPreMulSum(0.5);
    one([&](Tensors& t) { return backend.allreduce(t, scaled); });
    scaled.reduceOp = c10d::makeNCCLPreMulSum(at::full({1}, 0.25).to(device));
    one([&](Tensors& t) { return backend.allreduce(t, scaled); });
  }
  // Neither one run of memory nor in the order of its elements.
  at::Tensor grid = at::zeros({4, count}, type).to(device);
  grid.copy_(numbers(rank, 4 * count, type).view({4, count}));
  Tensors columns{grid.t()};
  backend.allreduce(columns, {})->wait();
  keep({grid});
  Tensors rows{grid.slice(0, 0, 4, 2)};
  backend.broadcast(rows, from_one)->wait();
  keep({grid});
  c10d::BarrierOptions barrier;
  if (!device.is_cpu()) {
    barrier.device = device;
    barrier.device_ids = {device.index()};
  }
  backend.barrier(barrier)->wait();
  return kept;
}

TEST(C10dDevice, GivesTheBitsOfTheCpuInEveryOperation) {
  for (const int n : {2, 3}) {
    std::vector<int> late;
    for (int r = 0; r < n; ++r) late.push_back(1 + 3 * r);
    run_ranks(make_device_ranks(late), [](WirewiseBackend& backend, int rank) {
      for (const c10::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong, at::kFloat8_e4m3fn, at::kComplexFloat, at::kUInt16}) {
        for (const std::int64_t count : {0L, 1L, 1003L}) {
          SCOPED_TRACE(std::string(c10::toString(type)) + " " + std::to_string(count));
          const Tensors expected = everything(backend, rank, count, type, kCpu);
          const Tensors results = everything(backend, rank, count, type, pretend::device());
          ASSERT_EQ(results.size(), expected.size());
          for (std::size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(same(results[i], expected[i])) << "result " << i;
        }
      }
    });
  }
}

// Each rank's devices are late in their own way; a call of the CPU, or of another device, must not overtake what a device holds back.
TEST(C10dDevice, CallsOfAllDevicesKeepOneOrder) {
  run_ranks(make_device_ranks({0, 20, 200}), [](WirewiseBackend& backend, int rank) {
    const std::vector<c10::Device> places{pretend::device(0), kCpu, pretend::device(1), pretend::device(0), kCpu, kCpu};
    std::vector<Tensors> tensors;
    std::vector<WirewiseBackend::WorkPtr> works;
    for (int i = 0; i < 60; ++i) {
      tensors.push_back({at::full({3}, (rank + 1) * 1000 + i, at::kLong).to(places[static_cast<std::size_t>(i) % places.size()])});
      works.push_back(backend.allreduce(tensors.back(), {}));  // all alike, so that a wrong order shows in the sums
      // This rank's devices get all the time that they need, so without the order it would issue calls as they are made, and others not.
      for (int pause = 0; rank == 0 && pause < 500; ++pause) std::this_thread::yield();
    }
    for (int i = 59; i >= 0; --i) {
      const auto at = static_cast<std::size_t>(i);
      works[at]->wait();
      EXPECT_TRUE(same(tensors[at][0], at::full({3}, 6000 + 3 * i, at::kLong))) << "call " << i << ": " << tensors[at][0].to(kCpu)[0].item<long>();
    }
    // And behind a device's call: a barrier of the CPU, the monitored one, coalesced calls of both.
    Tensors last{at::ones({5}).to(pretend::device())}, host{at::ones({5})};
    const auto pending = backend.allreduce(last, {});
    backend.barrier({})->wait();
    pending->wait();
    c10d::BarrierOptions watched;
    watched.timeout = 20s;
    const auto before = backend.allreduce(last, {});
    backend.monitoredBarrier(watched, true);
    before->wait();
    backend.startCoalescing();
    (void)backend.allreduce(last, {});
    (void)backend.allreduce(host, {});
    backend.endCoalescing()->wait();
    EXPECT_TRUE(same(last[0], at::full({5}, 27.0F)));
    EXPECT_TRUE(same(host[0], at::full({5}, 3.0F)));
  });
}

TEST(C10dDevice, RanksShareADevice) {
  const auto shared = std::make_shared<HostDevice>(5);
  std::vector<BackendPtr> backends;
  for (auto& communicator : make_thread_communicators(3)) {
    backends.push_back(c10::make_intrusive<WirewiseBackend>(std::move(communicator), 30s, [shared](c10::Device) { return shared; }));
  }
  run_ranks(backends, [](WirewiseBackend& backend, int rank) {
    for (int i = 0; i < 20; ++i) {
      Tensors tensor{numbers(rank + i, 10'000, at::kFloat).to(pretend::device())};
      const at::Tensor expected = numbers(i, 10'000, at::kFloat) + numbers(1 + i, 10'000, at::kFloat) + numbers(2 + i, 10'000, at::kFloat);
      backend.allreduce(tensor, {})->wait();
      EXPECT_TRUE(same(tensor[0], expected));
    }
  });
  backends.clear();
  EXPECT_EQ(shared->pinned(), 0U);
}

TEST(C10dDevice, FuturesAndCallbacksSeeFinishedData) {
  run_ranks(make_device_ranks({40, 7}), [](WirewiseBackend& backend, int rank) {
    const at::Tensor sum = numbers(0, 2000, at::kFloat) + numbers(1, 2000, at::kFloat);
    // A tensor that the operation works in; then one that is copied back in the end.
    for (const std::int64_t stride : {1, 2}) {
      const at::Tensor whole = numbers(rank, 2000, at::kFloat).to(pretend::device());
      const at::Tensor tensor = whole.slice(0, 0, 2000, stride);
      Tensors tensors{tensor};
      const at::Tensor expected = sum.slice(0, 0, 2000, stride);
      const int before = pretend::synchronized.load();
      const auto work = backend.allreduce(tensors, {});
      const auto future = work->getFuture();
      std::atomic<int> seen{0};
      future->addCallback([&](c10::ivalue::Future& done) {
        const auto value = done.value().toTensorVector();
        seen = !done.hasError() && value.size() == 1 && value[0].device() == pretend::device() && same(value[0], expected) ? 1 : 2;
      });
      future->wait();
      EXPECT_TRUE(same(tensor, expected));
      while (seen == 0) std::this_thread::yield();
      EXPECT_EQ(seen.load(), 1);
      EXPECT_TRUE(work->isSuccess());
      if (stride == 2) {
        EXPECT_GT(pretend::synchronized.load(), before);  // a copy in a stream is not over when it is queued
        EXPECT_TRUE(same(whole.slice(0, 1, 2000, 2), numbers(rank, 2000, at::kFloat).slice(0, 1, 2000, 2)));
      }
    }
    at::Tensor own = backend.allocateTensor(100, at::TensorOptions(pretend::device()).dtype(at::kFloat));
    EXPECT_EQ(own.device(), pretend::device());
    own.copy_(at::ones({100}));
    Tensors list{own};
    backend.allreduce(list, {})->wait();
    EXPECT_TRUE(same(own, at::full({100}, 2.0F)));
  });
}

TEST(C10dDevice, WhatCantBeDoneIsRefused) {
  run_ranks(2, [](WirewiseBackend& backend, int) {  // its devices are CUDA's
    Tensors tensor{at::ones({4}).to(pretend::device())};
    expect_parts(error_of([&] { backend.allreduce(tensor, {}); }), {"can't use privateuseone:0", "CPU and of CUDA"});
    c10d::BarrierOptions two;
    two.device_ids = {0, 1};
    expect_parts(error_of([&] { backend.barrier(two); }), {"2 device_ids"});
  });
  run_ranks(make_device_ranks({1, 1}), [](WirewiseBackend& backend, int) {
    at::Tensor cpu = at::ones({4}), here = at::ones({2}).to(pretend::device(0)), there = at::ones({2}).to(pretend::device(1));
    const auto names_both = [&](const std::function<void()>& call, const std::string& a, const std::string& b) { expect_parts(error_of(call), {a, b}); };
    names_both([&] { backend._allgather_base(cpu, here, {}); }, "on cpu", "on privateuseone:0");
    Tensors mixed{here, there};
    names_both([&] { backend.allreduce_coalesced(mixed, {}); }, "on privateuseone:0", "on privateuseone:1");
    std::vector<Tensors> lists{{here, cpu}};
    Tensors input{here};
    names_both([&] { backend.allgather(lists, input, {}); }, "on cpu", "on privateuseone:0");
    c10d::AllreduceOptions scaled;
    scaled.reduceOp = c10d::makeNCCLPreMulSum(at::full({1}, 0.25).to(pretend::device(1)));
    names_both([&] { backend.allreduce(input, scaled); }, "privateuseone:0", "privateuseone:1");
    backend.allreduce(input, {})->wait();  // the group goes on
    EXPECT_TRUE(same(here, at::full({2}, 2.0F)));
  });
}

TEST(C10dDevice, DisagreementAndDeadlinesReachItsCalls) {
  run_ranks(make_device_ranks({2, 9}), [](WirewiseBackend& backend, int rank) {
    Tensors tensor{at::ones({4 + rank}).to(pretend::device())};
    const auto work = backend.allreduce(tensor, {});
    const Error error = error_of([&] { work->wait(); });
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
    expect_parts(error, {"rank 0", "rank 1", "4 float32", "5 float32"});
    EXPECT_EQ(backend.getError(), c10d::ErrorType::COMM_ERROR);
  });
  run_ranks(make_device_ranks({2, 2}, 300ms), [](WirewiseBackend& backend, int rank) {
    if (rank == 1) return;  // stays away
    Tensors tensor{at::ones({4}).to(pretend::device())};
    EXPECT_EQ(error_of([&] { backend.allreduce(tensor, {})->wait(); }).kind(), ErrorKind::kTimeout);
  });
}

// A rank leaves; the others' calls on devices end with an error that names it.
TEST(C10dDevice, ALostPeerEndsItsCalls) {
  auto backends = make_device_ranks({2, 5});
  Tensors tensor{at::ones({4}).to(pretend::device())};
  const auto work = backends[0]->allreduce(tensor, {});
  backends[1].reset();
  expect_parts(error_of([&] { work->wait(); }), {"rank 1"});
}

TEST(C10dDevice, AbortAndDestructionEndWhatIsInFlight) {
  for (const int late : {0, 50, -1}) {  // -1: the device never delivers
    for (const bool abort : {true, false}) {
      SCOPED_TRACE(std::to_string(late) + (abort ? " abort" : " destruction"));
      auto backends = make_device_ranks({late, 0}, late < 0 ? 500ms : 30s);
      std::vector<Tensors> tensors;
      std::vector<WirewiseBackend::WorkPtr> works;
      for (int i = 0; i < 5; ++i) {
        tensors.push_back({at::ones({100, 3}).to(pretend::device()).t()});
        works.push_back(backends[0]->allreduce(tensors.back(), {}));
      }
      if (abort) {
        backends[0]->abort();
      } else {
        backends[0].reset();
      }
      for (const auto& work : works) {
        const Error error = error_of([&] { work->wait(); });
        EXPECT_TRUE(error.kind() == ErrorKind::kAborted || late < 0) << error.what();
      }
      // The peer hears of it.
      Tensors other{at::ones({100, 3}).to(pretend::device())};
      EXPECT_THROW(backends[1]->allreduce(other, {})->wait(), Error);
    }
  }
}

}  // namespace
}  // namespace wirewise
