// How ranks introduce themselves through the store: each claims its number and shows a card that says on which host it is and how it is
// reached. Ranks with equal host ids share memory; all others meet over a network.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "wirewise/comm/arena.h"
#include "wirewise/comm/store.h"

namespace wirewise::comm {

struct Card {
  int size = 0;
  long pid = 0;
  long user = 0;
  std::string host_id;  // equal where ranks can share memory
  std::string machine;  // equal where ranks share cores
  std::string socket;   // name of the abstract socket
  std::string cookie;   // what proves that a connection comes from a rank of this store
  std::string host;
  std::vector<int> cpus;  // that it may run on
  std::string device;     // that no other rank of the host may have; empty: none
};

/// The cards of all ranks, and which of the communicators of this name in this process they are for.
struct Cards {
  int rank = 0;
  std::string name;
  std::chrono::milliseconds timeout{};
  std::chrono::steady_clock::time_point deadline;
  std::int64_t generation = 0;
  std::vector<Card> all;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(all.size()); }
  [[nodiscard]] const Card& of(int r) const noexcept { return all[static_cast<std::size_t>(r)]; }
  [[nodiscard]] const Card& own() const noexcept { return of(rank); }
  /// "rank 3 (node1, pid 4711)"
  [[nodiscard]] std::string who(int r) const;
};

/// This rank's card, with a new cookie and the name of a socket.
[[nodiscard]] Card make_card(int size);

/// Claims `rank`, shows `own` and reads the others'. Throws Timeout naming the ranks that did not come, BadInput when a rank is taken,
/// or a device is another's too, Mismatch when sizes differ.
[[nodiscard]] Cards exchange_cards(Store& store, int rank, Card own, std::chrono::milliseconds timeout, const std::string& name);

/// All ranks' `text` through the store, by rank; `what` tells calls apart. Throws Timeout naming ranks, or what `look_after` throws, which is
/// called some times a second meanwhile.
[[nodiscard]] std::vector<std::string> exchange_texts(Store& store, const Cards& cards, const std::string& what, const std::string& text,
                                                      const std::function<void()>& look_after = {});

[[nodiscard]] std::string hex(ArenaId id);
[[nodiscard]] std::string host_name();
/// Equal in processes of one running kernel.
[[nodiscard]] std::string machine_id();
/// Equal in processes that can share memory: of one running kernel and network namespace, or as WIREWISE_HOST_ID says.
[[nodiscard]] std::string host_id();

}  // namespace wirewise::comm
