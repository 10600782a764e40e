// An operation of a communicator across hosts: a list of stages. Each stage begins calls on the host's group and transfers to other hosts;
// the next begins when all of them are done. Before any data of another host is touched, its fingerprint has come and agrees.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "wirewise/comm/collective.h"
#include "wirewise/comm/operation.h"
#include "wirewise/comm/spanning_group.h"

namespace wirewise::comm {

class SpanningOperation : public Work::State {
 public:
  bool step() override;
  [[nodiscard]] bool retired() const noexcept override { return reached(Level::kComplete); }
  [[nodiscard]] std::vector<Missing> missing() const override;
  void wait(Level level) override { owner_->wait(*this, level); }
  [[nodiscard]] bool test() override { return owner_->test(*this); }
  /// It has transfers in flight: only the network can move it.
  [[nodiscard]] bool on_network() const noexcept { return greeted_ < partners_.size() || !inbound_.empty() || !outbound_.empty() || !polls_.empty(); }
  /// It has calls on the host's group under way.
  [[nodiscard]] bool on_host() const noexcept { return !works_.empty(); }
  /// Lets go of transfers and calls, after a failure.
  void let_go() noexcept;

 protected:
  SpanningOperation(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options);

  /// Called when its turn has come: declares the stages.
  virtual void begin() = 0;

  void stage(std::function<void()> start) { stages_.push_back(std::move(start)); }
  /// All ranks of this host have entered and agree. The first stage of every collective.
  void meet();
  /// Exchanges fingerprints with the rails and with `partners`, the ranks that data comes from or goes to (ones on this host are skipped).
  /// kPartners: with those alone, where the partners of all ranks join all hosts.
  enum class Greeted : std::uint8_t { kRailsToo, kPartners };
  void greet(const std::vector<int>& partners, Greeted whom = Greeted::kRailsToo);

  // --- within a stage
  void local(Work work) { works_.push_back(std::move(work)); }
  void send(int peer, std::uint32_t step, const void* data, std::size_t bytes);
  /// A receive that begins once the peer's fingerprint has come. The number tells it to received().
  std::size_t recv(int peer, std::uint32_t step, void* data, std::size_t bytes);
  [[nodiscard]] bool received(std::size_t number) const noexcept { return number < arrived_.size() && arrived_[number]; }
  /// A send under a tag of its own class, that needs no fingerprint.
  void send_raw(int peer, std::uint64_t tag, const void* data, std::size_t bytes) {
    outbound_.push_back({peer, owner_->network().send(peer, tag, data, bytes)});
  }
  /// Whether a transfer is done. One with a peer that is gone never is: the group is told, and fails the operation.
  [[nodiscard]] bool is_done(Transfer& transfer, int peer);
  /// Called again and again until it returns true; the stage waits for it. It may begin sends and receives.
  void until(std::function<bool()> poll) { polls_.push_back(std::move(poll)); }
  /// Memory until the operation ends, which peers on this host can map.
  [[nodiscard]] std::byte* scratch(std::size_t bytes);

  /// For calls on the host's group: no deadline of their own, and named as this operation is.
  [[nodiscard]] CallOptions inner_options() const;
  [[nodiscard]] Fingerprint inner_print(Operation operation, const Fingerprint& like) const;
  /// What another rank of this host has called.
  [[nodiscard]] const Fingerprint& print_of_place(int place) const { return met_[static_cast<std::size_t>(place)]; }

  [[nodiscard]] SpanningGroup& owner() const noexcept { return *owner_; }
  [[nodiscard]] const HostMap& hosts() const noexcept { return owner_->hosts(); }
  [[nodiscard]] int rank() const noexcept { return owner_->rank(); }
  [[nodiscard]] int size() const noexcept { return owner_->size(); }
  [[nodiscard]] int host() const noexcept { return owner_->host(); }
  [[nodiscard]] int place() const noexcept { return owner_->place(); }
  [[nodiscard]] int local_size() const noexcept { return hosts().members_count(host()); }
  [[nodiscard]] int member(int place) const noexcept { return hosts().members(host())[static_cast<std::size_t>(place)]; }

  std::shared_ptr<SpanningGroup> owner_;

 private:
  struct Inbound {
    int peer;
    std::uint64_t tag;
    std::byte* data;
    std::size_t bytes;
    std::size_t number;
    std::unique_ptr<Transfer> transfer;
  };
  struct Outbound {
    int peer;
    std::unique_ptr<Transfer> transfer;
  };
  struct Partner {
    Fingerprint theirs;
    std::unique_ptr<Transfer> transfer;
    bool agrees = false;
  };
  bool advance_works();
  bool advance_greetings();
  bool advance_transfers();
  bool advance_polls();
  [[nodiscard]] bool open() const noexcept {
    return !works_.empty() || !inbound_.empty() || !outbound_.empty() || !polls_.empty() || greeted_ < partners_.size();
  }
  [[nodiscard]] std::uint64_t data_tag(std::uint32_t step) const noexcept;
  [[nodiscard]] std::uint64_t greeting_tag() const noexcept;

  bool begun_ = false;
  std::deque<std::function<void()>> stages_;
  std::vector<Work> works_;
  std::vector<Fingerprint> met_;
  std::map<int, Partner> partners_;
  std::size_t greeted_ = 0;
  std::deque<Inbound> inbound_;
  std::vector<Outbound> outbound_;
  std::vector<std::function<bool()>> polls_;
  std::vector<bool> arrived_;
  std::vector<void*> scratch_;
};

}  // namespace wirewise::comm
