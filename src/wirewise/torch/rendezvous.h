// How ranks find each other: from a URL and the variables that a launcher sets to a World whose ranks have all met in one store.
//
//   env://                                        RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as torchrun and `wirewise launch`
//   set them tcp://host:port?rank=R&world_size=N           rank 0 listens there; [::1] for IPv6
//   file:///folder/file?rank=R&world_size=N       a file that all ranks see
//
// With env://, the private folder WIREWISE_STORE wins when all ranks are on this host: no port is opened then. rank, world_size,
// local_rank and local_world_size may stand in any URL and win over the variables RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/comm/listener.h"
#include "wirewise/comm/store.h"

namespace wirewise {

/// Looks a variable up; empty when it isn't set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
[[nodiscard]] Environment process_environment();

/// What one rank knows before it meets the others. Read from text only: nothing is resolved, opened or contacted.
struct Meeting {
  enum class Place { kTcp, kFile, kFolder } place = Place::kTcp;
  int rank = 0;
  int size = 1;
  // Set when the launcher says; otherwise found out when the ranks meet.
  std::optional<int> local_rank;
  std::optional<int> local_size;
  Endpoint endpoint;            // kTcp
  std::filesystem::path path;   // kFile: the file. kFolder: the folder
  bool agent_store = false;     // kTcp: torchrun's agent holds the store, so rank 0 doesn't
  int attempt = 0;              // torchrun's restart count: each start meets under its own keys
  std::string address_setting;  // where host and port were read from, for errors: "MASTER_ADDR", "the URL"
  std::string port_setting;
};

/// Throws bad input that names what is missing, unknown or out of range.
[[nodiscard]] Meeting parse_meeting(std::string_view url, const Environment& environment = process_environment());

/// A rank as the others see it.
struct Member {
  std::string host;
  long pid = 0;
};

struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;
  std::shared_ptr<Store> store;
  c10::intrusive_ptr<c10d::Store> c10d_store;  // the same store for libtorch's own process groups; null for a private folder
  std::string where;                           // "10.0.0.1:29500", for logs
  std::vector<Member> members;                 // by rank
  std::vector<int> host_of;                    // by rank: the number of its host; equal where ranks share one
};

/// Meets all ranks. Throws bad input (port in use, address not this host's or out of others' reach, ranks that disagree on the
/// world size, two processes with one rank), kStore when the store breaks, kTimeout naming the ranks that didn't come. With TCP
/// rank 0 binds the one address that the host resolves to. TCPStore doesn't authenticate: it belongs on a trusted network.
[[nodiscard]] World meet(const Meeting& meeting, std::chrono::milliseconds timeout = std::chrono::minutes(5));

/// parse_meeting, then meet.
[[nodiscard]] World rendezvous(std::string_view url = "env://", std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace wirewise
