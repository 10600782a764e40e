#include "wirewise/comm/ucx_network.h"

#ifdef WIREWISE_WITH_UCX

#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/comm/ucx_worker.h"

namespace wirewise::comm {
namespace {

/// Throws what a flight ended with, unless it went well.
void check(const UcxFlight& flight, const UcxWorker& worker) {
  using End = UcxFlight::End;
  const std::string peer = flight.peer < 0 ? "any rank" : "rank " + std::to_string(flight.peer);
  switch (flight.end) {
    case End::kFine: return;
    case End::kTruncated:
      throw Error(ErrorKind::kFailed, "A message of " + std::to_string(flight.bytes) + " bytes from " +
                                          (flight.source < 0 ? peer : "rank " + std::to_string(flight.source)) +
                                          " doesn't fit into the " + std::to_string(flight.capacity) + " bytes that wait for it.");
    case End::kPeerLost:
      throw Error(ErrorKind::kPeerLost,
                  flight.peer < 0 ? "all peers are gone." : peer + " is gone: " + worker.words(flight.status) + ".");
    case End::kBrokenOff:
      throw Error(ErrorKind::kFailed, "The connection with " + peer + " was closed when a transfer under way was let go.");
    case End::kClosed: throw Error(ErrorKind::kAborted, "The network was closed while a transfer with " + peer + " was in flight.");
    case End::kFailed: throw Error(ErrorKind::kFailed, "UCX can't move data with " + peer + ": " + worker.words(flight.status) + ".");
  }
}

class UcxTransfer final : public Transfer {
 public:
  UcxTransfer(std::shared_ptr<UcxWorker> worker, std::shared_ptr<UcxFlight> flight)
      : worker_(std::move(worker)), flight_(std::move(flight)) {}
  ~UcxTransfer() override { worker_->cancel(*flight_); }
  UcxTransfer(const UcxTransfer&) = delete;
  UcxTransfer& operator=(const UcxTransfer&) = delete;

  bool done() override {
    if (!flight_->done.load(std::memory_order_acquire)) return false;
    check(*flight_, *worker_);
    return true;
  }
  [[nodiscard]] int source() const noexcept override { return flight_->source; }
  [[nodiscard]] std::size_t bytes() const noexcept override { return flight_->bytes; }

 private:
  std::shared_ptr<UcxWorker> worker_;
  std::shared_ptr<UcxFlight> flight_;
};

class UcxNetwork final : public Network {
 public:
  explicit UcxNetwork(std::shared_ptr<UcxWorker> worker) : worker_(std::move(worker)) {}
  ~UcxNetwork() override { worker_->close(); }
  UcxNetwork(const UcxNetwork&) = delete;
  UcxNetwork& operator=(const UcxNetwork&) = delete;

  std::unique_ptr<Transfer> send(int peer, std::uint64_t tag, const void* data, std::size_t bytes) override {
    require(tag);
    return std::make_unique<UcxTransfer>(worker_, worker_->send(peer, tag, data, bytes));
  }
  std::unique_ptr<Transfer> recv(int peer, std::uint64_t tag, void* data, std::size_t bytes) override {
    require(tag);
    return std::make_unique<UcxTransfer>(worker_, worker_->recv(peer, tag, data, bytes));
  }
  int probe(std::uint64_t tag) override {
    require(tag);
    return worker_->probe(tag);
  }
  bool progress() override { return worker_->progress(); }
  void sleep(std::chrono::nanoseconds most) override { worker_->sleep(most); }
  void wake() noexcept override { worker_->wake(); }
  [[nodiscard]] std::string describe() const override { return worker_->describe(); }

 private:
  static void require(std::uint64_t tag) {
    if (tag > kMostTag)
      throw Error(ErrorKind::kFailed,
                  "A message's tag is " + std::to_string(tag) + ", above the most of " + std::to_string(kMostTag) + ".");
  }

  std::shared_ptr<UcxWorker> worker_;
};

class UcxEnd final : public NetworkEnd {
 public:
  explicit UcxEnd(const NetworkInterface& interface) : worker_(std::make_shared<UcxWorker>(interface)) {}

  [[nodiscard]] std::string address() const override { return worker_->address(); }
  [[nodiscard]] std::unique_ptr<Network> connect(int rank, const std::vector<std::string>& addresses) override {
    constexpr std::size_t kMostRanks = std::size_t{1} << 24;  // what the tag has room for
    if (addresses.size() > kMostRanks)
      throw Error(ErrorKind::kFailed, std::to_string(addresses.size()) + " ranks are more than a network holds.");
    worker_->connect(rank, addresses);
    return std::make_unique<UcxNetwork>(worker_);
  }

 private:
  std::shared_ptr<UcxWorker> worker_;
};

}  // namespace

std::unique_ptr<NetworkEnd> make_ucx_end(const NetworkInterface& interface) { return std::make_unique<UcxEnd>(interface); }

}  // namespace wirewise::comm

#endif
