// When each op of a step ran on a device, by events in the compute stream: the thread only queues ops, so its own clock says nothing of
// them.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <vector>

#include "wirewise/torch/timeline.h"

namespace wirewise {

class DeviceClock {
 public:
  DeviceClock(c10::Device device, std::size_t ops);

  void begin();
  /// Op `index` comes next; whatever the stream waits for before ready() is for the op `waits_for` (-1: nothing).
  void arrive(std::size_t index);
  void ready(std::size_t index, int waits_for);
  void done(std::size_t index);
  /// Waits for the stream, then fills the timeline: an op's own time, and the waiting for it by others, count as its busy time.
  void read(Timeline& timeline);

 private:
  [[nodiscard]] c10::Stream stream() const;
  struct Marks {
    c10::Event arrive, ready, done;
    int waits_for = -1;
  };
  c10::Device device_;
  c10::Event begin_, end_;
  std::vector<Marks> ops_;
};

}  // namespace wirewise
