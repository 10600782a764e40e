// all_gather around a ring of hosts: each passes on to the next what it received from the one before, one shard a place of the host.
// Every host talks to two others however many there are. Hosts hold equally many ranks.
#pragma once

#include "wirewise/comm/spanning_move.h"

namespace wirewise::comm {

class SpanningRingGather final : public SpanningGather {
 public:
  SpanningRingGather(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options, std::vector<GatherPart> parts)
      : SpanningGather(std::move(owner), print, std::move(options), std::move(parts)) {}

 private:
  void exchange() override;
};

}  // namespace wirewise::comm
