// What all collectives share: the call slot, meeting the peers, and comparing fingerprints before any data is touched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wirewise/comm/group.h"
#include "wirewise/comm/operation.h"

namespace wirewise::comm {

struct ConstSpan {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};
struct Span {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

class Collective : public Work::State {
 public:
  ~Collective() override;
  bool post() override;
  [[nodiscard]] bool retired() const noexcept override;
  [[nodiscard]] std::vector<Missing> missing() const override;
  void release() noexcept override;
  /// For a call that the quick path has announced already (group.h) and could not end: `sequence` is its number.
  void continue_from(std::uint64_t sequence) noexcept {
    fingerprint.sequence = sequence;
    posted_.store(true, std::memory_order_release);
  }

 protected:
  Collective(std::shared_ptr<Group> group, const Fingerprint& fingerprint, CallOptions options);

  /// Sets what peers read of this call: buffers' offsets (0: not shared) and counts. In the constructor.
  void set_words(std::vector<std::uint64_t> words);
  /// Offset of a buffer in shared memory. 0 when it isn't there; `kEverything` when it is empty and needs no place.
  [[nodiscard]] std::uint64_t place_of(const void* data, std::size_t bytes) const noexcept;

  /// Looks for peers that have called by now. True when any was new. Throws Mismatch.
  bool meet();
  virtual void on_arrival(int /*peer*/) {}

  [[nodiscard]] bool posted() const noexcept { return posted_.load(std::memory_order_acquire); }
  [[nodiscard]] bool arrived(int r) const noexcept { return arrived_[static_cast<std::size_t>(r)]; }
  [[nodiscard]] bool all_arrived() const noexcept { return arrivals_ == size(); }
  [[nodiscard]] CallCell& cell(int r) const noexcept { return group->control().call(fingerprint.sequence, r); }
  [[nodiscard]] CallCell& own() const noexcept { return cell(rank()); }
  /// Memory that peers read during this call; it lasts until all of them have, or have left.
  [[nodiscard]] void* lend(std::size_t bytes);
  /// What peer `r` has sent along with set_words().
  [[nodiscard]] std::span<const std::uint64_t> words(int r) const noexcept;
  /// True when all peers have arrived and moved `counter` to at least `value`.
  [[nodiscard]] bool peers_reached(std::atomic<std::uint64_t> CallCell::*counter, std::uint64_t value) const noexcept;
  /// This rank no longer touches its peers' memory.
  void post_done() noexcept;
  [[nodiscard]] bool is_done() const noexcept { return done_; }
  [[nodiscard]] bool peers_done() const noexcept;
  [[nodiscard]] int rank() const noexcept { return group->rank(); }
  [[nodiscard]] int size() const noexcept { return group->size(); }

  /// Fills this rank's cell and issues it; `carried`: the words are data.
  void announce(std::span<const std::uint64_t> words, bool carried);
  /// For calls that begin where all peers have arrived and this rank's part is over.
  void begin_done() noexcept;

  bool staged_in_ = false;
  bool staged_out_ = false;
  std::uint64_t stage_ = 0;
  std::uint64_t initially_consumed_ = 0;  // kEverything: takes nothing from staging areas

 private:
  std::vector<std::uint64_t> words_;
  void* table_ = nullptr;  // of the words, where they don't fit into the cell
  std::vector<void*> lent_;
  std::atomic<bool> posted_{false};
  std::vector<bool> arrived_;
  int arrivals_ = 0;
  bool done_ = false;
};

}  // namespace wirewise::comm
