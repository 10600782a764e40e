// A bench case on a device's memory: every operation's data is found right there, on a device made of host memory whose copies come late.
#include <gtest/gtest.h>

#include <memory>

#include "comm/host_device.h"
#include "comm/ranks.h"
#include "wirewise/cli/bench_case.h"
#include "wirewise/comm/staged_communicator.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using bench::Op;

TEST(BenchOnADevice, FindsTheDataOfEveryOperationRight) {
  expect_no_errors(run_threads(3, [](Communicator& host) {
    const auto device = std::make_shared<HostDevice>();
    const auto staged = make_staged_communicator(host.split(0, host.rank()), device);
    bench::Plan plan;
    plan.iterations = 3;
    plan.warmup = 1;
    plan.shared = false;
    plan.on = {staged.get(), device.get()};
    for (const Op op : bench::parse_ops("all")) {
      for (const bool in_place : {false, true}) {
        if (!bench::has_form(op, in_place)) continue;
        const bench::Result result = bench::run_case(host, {op, DType::kFloat32, Reduction::kSum, 30'000, 1, in_place}, plan, {});
        EXPECT_EQ(result.wrong, 0U) << bench::name_of(op) << (in_place ? " in place" : "");
        EXPECT_EQ(result.limit_fraction, 0) << "no limit of a device is measured";
      }
    }
    host.barrier().wait();
  }));
}

TEST(BenchOnADevice, SeesWrongDataThere) {
  /// Every copy from the device brings its first byte changed (in place, so that is where in and out of the case begin).
  struct Liar final : DeviceStream {
    explicit Liar(std::unique_ptr<DeviceStream> honest) : honest_(std::move(honest)) {}
    void follow_current() override { honest_->follow_current(); }
    void copy_to_host(void* to, const void* from, std::size_t bytes) override {
      honest_->copy_to_host(to, from, bytes);
      if (bytes > 0) changed_ = static_cast<std::byte*>(to);
    }
    void copy_to_device(void* to, const void* from, std::size_t bytes) override { honest_->copy_to_device(to, from, bytes); }
    std::unique_ptr<DeviceEvent> record() override {
      auto event = honest_->record();
      while (!event->passed()) {
      }
      if (changed_ != nullptr) *changed_ ^= std::byte{1};
      return event;
    }
    std::unique_ptr<DeviceStream> honest_;
    std::byte* changed_ = nullptr;
  };
  struct LyingDevice final : Accelerator {
    int index() const noexcept override { return 0; }
    std::string describe() const override { return "liar"; }
    void* allocate(std::size_t bytes) override { return honest.allocate(bytes); }
    void free(void* pointer) noexcept override { honest.free(pointer); }
    void pin(void* pointer, std::size_t bytes) override { honest.pin(pointer, bytes); }
    void unpin(void* pointer) noexcept override { honest.unpin(pointer); }
    std::unique_ptr<DeviceStream> make_stream() override { return std::make_unique<Liar>(honest.make_stream()); }
    void make_current() override {}
    void synchronize() override {}
    std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Store>, int, int, CommunicatorOptions) override { return nullptr; }
    HostDevice honest{0};
  };
  expect_no_errors(run_threads(2, [](Communicator& host) {
    const auto honest = std::make_shared<HostDevice>();
    const auto staged = make_staged_communicator(host.split(0, host.rank()), honest);
    LyingDevice liar;
    bench::Plan plan;
    plan.iterations = 1;
    plan.warmup = 0;
    plan.on = {staged.get(), &liar};
    const bench::Result result = bench::run_case(host, {Op::kAllReduce, DType::kInt32, Reduction::kSum, 4000, 0, true}, plan, {1, 1, 1});
    EXPECT_GT(result.wrong, 0U);
    host.barrier().wait();
  }));
}

}  // namespace
}  // namespace wirewise
