// One UCP worker with its endpoints and the requests in flight, behind one lock. Private to the ucx_* files.
//
// UCX alone doesn't do what a Transfer promises: a tagged receive belongs to no endpoint, so that it outlives its sender, and a send
// can't be taken back. So the worker knows which receives wait for which peer and cancels them when its endpoint fails; and what is let
// go under way is ended by closing the endpoint.
#pragma once

#ifdef WIREWISE_WITH_UCX

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "wirewise/comm/network_interface.h"
#include "wirewise/comm/ucx_library.h"
#include "wirewise/comm/unique_fd.h"

namespace wirewise::comm {

class UcxWorker;

/// A message's tag at UCX: the sender's rank above the caller's tag.
inline constexpr int kUcxTagBits = 40;

/// A send or receive: what UCX's callback leaves for the transfer to read.
struct UcxFlight {
  enum class End { kFine, kTruncated, kPeerLost, kBrokenOff, kClosed, kFailed };

  UcxWorker* worker = nullptr;
  bool receive = false;
  int peer = -1;
  std::size_t capacity = 0;  // bytes of the memory
  void* request = nullptr;   // UCX's; null when done or abandoned
  std::atomic<bool> done{false};
  // Written before `done`:
  End end = End::kFine;
  ucs_status_t status = UCS_OK;
  int source = -1;
  std::size_t bytes = 0;
};

class UcxWorker {
 public:
  explicit UcxWorker(const NetworkInterface& interface);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  [[nodiscard]] std::string address();
  void connect(int rank, const std::vector<std::string>& addresses);

  [[nodiscard]] std::shared_ptr<UcxFlight> send(int peer, std::uint64_t tag, const void* data, std::size_t bytes);
  [[nodiscard]] std::shared_ptr<UcxFlight> recv(int peer, std::uint64_t tag, void* data, std::size_t bytes);
  /// The sender of an unexpected message; kAnyPeer: none.
  [[nodiscard]] int probe(std::uint64_t tag);
  /// Ends it; on return UCX doesn't touch its memory.
  void cancel(UcxFlight& flight) noexcept;

  bool progress();
  void sleep(std::chrono::nanoseconds most);
  void wake() noexcept;

  /// Sends what is buffered, as far as peers take it in within a second or two, and closes all endpoints. What is in flight ends.
  void close() noexcept;

  [[nodiscard]] std::string describe();
  [[nodiscard]] std::string words(ucs_status_t status) const { return ucx_.words(status); }

 private:
  struct Peer {
    enum class State { kFresh, kOpen, kLost, kBrokenOff };
    UcxWorker* worker = nullptr;
    int rank = -1;
    std::string address;
    State state = State::kFresh;
    ucp_ep_h endpoint = nullptr;
    bool failed = false;  // told by UCX, not yet acted on
    bool closing = false;
  };

  void open(Peer& peer, bool say_hello);
  void drop(Peer& peer, Peer::State state);
  void settle();  // acts on failures that UCX told of
  void abandon(const Peer& peer);
  void finish(UcxFlight& flight, ucs_status_t status) noexcept;
  void keep(const std::shared_ptr<UcxFlight>& flight, void* request);
  [[nodiscard]] bool all_gone() const;
  [[nodiscard]] Peer& peer_of(int rank);

  static void on_sent(void* request, ucs_status_t status, void* flight);
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* flight);
  static void on_freed(void* request, ucs_status_t status, void* worker);
  static void on_closed(void* request, ucs_status_t status, void* peer);
  static void on_failure(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t on_hello(void* arg, const void* header, std::size_t header_length, void* data, std::size_t length,
                               const ucp_am_recv_param_t* param);

  UcxLibrary ucx_;
  NetworkInterface interface_;
  std::mutex mutex_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int worker_fd_ = -1;
  UniqueFd wake_fd_;
  std::atomic<int> sleepers_{0};
  int rank_ = -1;
  bool closed_ = false;
  bool failures_ = false;  // some peer's `failed` is set
  std::vector<std::unique_ptr<Peer>> peers_;
  std::unordered_map<UcxFlight*, std::shared_ptr<UcxFlight>> in_flight_;
  std::vector<std::shared_ptr<UcxFlight>> abandoned_;  // UCX may still call back about them
  std::uint64_t finished_ = 0;                         // counts ends
  std::unordered_map<std::thread::id, std::uint64_t> seen_;  // by thread: `finished_` when it last looked
};

}  // namespace wirewise::comm

#endif
