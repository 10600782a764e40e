// What HostChannels is made of. Private to the host_channels* files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/comm/host_channels.h"
#include "wirewise/comm/unique_fd.h"

namespace wirewise::comm {

/// A message on the wire is its length (4 bytes, little-endian) and its bytes.
struct HostChannel {
  int rank = -1;
  UniqueFd socket;
  std::string in;          // bytes that make no whole message yet
  std::string out;         // framed messages that the socket didn't take yet
  std::size_t out_at = 0;  // of which so many bytes are gone
  bool overfull = false;   // said once that messages were dropped
  bool dead = false;
};

struct HostChannels::State {
  std::mutex mutex;
  std::vector<HostChannel> channels;
  std::vector<std::pair<int, std::string>> heard;
};

/// Non-blocking, no delay, and a vanished host noticed within seconds.
void set_channel_options(int socket) noexcept;

}  // namespace wirewise::comm
