#include "wirewise/torch/device_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace wirewise {
namespace {

c10::Event timed_event(c10::Device device) { return c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT); }

}  // namespace

DeviceClock::DeviceClock(c10::Device device, std::size_t ops) : device_(device), begin_(timed_event(device)), end_(timed_event(device)) {
  ops_.reserve(ops);
  for (std::size_t i = 0; i < ops; ++i) ops_.push_back({timed_event(device), timed_event(device), timed_event(device), -1});
}

c10::Stream DeviceClock::stream() const { return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_); }

void DeviceClock::begin() { begin_.record(stream()); }
void DeviceClock::arrive(std::size_t index) { ops_[index].arrive.record(stream()); }
void DeviceClock::ready(std::size_t index, int waits_for) {
  ops_[index].ready.record(stream());
  ops_[index].waits_for = waits_for;
}
void DeviceClock::done(std::size_t index) { ops_[index].done.record(stream()); }

void DeviceClock::read(Timeline& timeline) {
  end_.record(stream());
  end_.synchronize();
  const auto seconds = [](const c10::Event& from, const c10::Event& to) { return from.elapsedTime(to) / 1e3; };
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    TimedOp& op = timeline.ops[i];
    op.start = seconds(begin_, ops_[i].ready);
    op.end = seconds(begin_, ops_[i].done);
    op.busy += op.end - op.start;
    if (ops_[i].waits_for >= 0) timeline.ops[static_cast<std::size_t>(ops_[i].waits_for)].busy += seconds(ops_[i].arrive, ops_[i].ready);
  }
  timeline.step = seconds(begin_, end_);
}

}  // namespace wirewise
