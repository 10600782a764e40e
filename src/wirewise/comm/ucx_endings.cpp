// How transfers and endpoints of a UcxWorker end: well, by a peer's death, by being let go, and when all is closed.
#include "wirewise/comm/ucx_worker.h"

#ifdef WIREWISE_WITH_UCX

#include <algorithm>
#include <utility>

namespace wirewise::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kFlushPatience = std::chrono::seconds(2);  // for peers that live but don't take in what was sent to them
constexpr auto kClosePatience = std::chrono::seconds(1);  // for UCX to give up endpoints that were closed by force

}  // namespace

bool UcxWorker::all_gone() const {
  return std::all_of(peers_.begin(), peers_.end(), [this](const std::unique_ptr<Peer>& peer) {
    return peer->address.empty() || peer->rank == rank_ || peer->state == Peer::State::kLost || peer->state == Peer::State::kBrokenOff;
  });
}

void UcxWorker::drop(Peer& peer, Peer::State state) {
  if (peer.state != Peer::State::kOpen) return;
  peer.state = state;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.cb.send = &UcxWorker::on_closed;
  param.user_data = &peer;
  peer.closing = true;
  const void* const request = ucx_.ep_close_nbx(std::exchange(peer.endpoint, nullptr), &param);
  if (!UCS_PTR_IS_PTR(request)) peer.closing = false;
  // Receives belong to no endpoint. Cancelling changes in_flight_: walk a copy.
  std::vector<std::shared_ptr<UcxFlight>> waiting;
  const bool gone = all_gone();
  for (const auto& [pointer, flight] : in_flight_) {
    if (flight->receive && (flight->peer == peer.rank || (flight->peer < 0 && gone))) waiting.push_back(flight);
  }
  for (const auto& flight : waiting) {
    if (flight->request != nullptr) ucx_.request_cancel(worker_, flight->request);
  }
  failures_ = true;
}

void UcxWorker::settle() {
  if (!failures_) return;
  failures_ = false;
  for (const auto& peer : peers_) {
    if (std::exchange(peer->failed, false)) drop(*peer, Peer::State::kLost);
    if (peer->state != Peer::State::kLost && peer->state != Peer::State::kBrokenOff) continue;
    if (peer->closing) {
      failures_ = true;  // look again
    } else {
      abandon(*peer);
    }
  }
}

// A message of which some pieces came ends neither by cancelling nor with its endpoint. Once that is closed no piece can come any more,
// so the memory is free, though UCX keeps the request until its worker ends.
void UcxWorker::abandon(const Peer& peer) {
  for (auto entry = in_flight_.begin(); entry != in_flight_.end();) {
    if (entry->second->peer == peer.rank) {
      finish(*entry->second, UCS_ERR_CANCELED);
      abandoned_.push_back(std::move(entry->second));
      entry = in_flight_.erase(entry);
    } else {
      ++entry;
    }
  }
}

void UcxWorker::cancel(UcxFlight& flight) noexcept {
  if (flight.done.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  if (flight.receive && flight.request != nullptr) ucx_.request_cancel(worker_, flight.request);
  if (flight.done) return;
  if (flight.peer >= 0) {
    drop(*peers_[static_cast<std::size_t>(flight.peer)], Peer::State::kBrokenOff);
  } else {
    for (const auto& peer : peers_) drop(*peer, Peer::State::kBrokenOff);
  }
  const auto deadline = Clock::now() + kClosePatience;
  while (!flight.done && Clock::now() < deadline) {
    ucx_.worker_progress(worker_);
    settle();
  }
  if (flight.done) return;
  const auto entry = in_flight_.find(&flight);
  if (entry == in_flight_.end()) return;
  finish(flight, UCS_ERR_CANCELED);
  abandoned_.push_back(std::move(entry->second));
  in_flight_.erase(entry);
}

void UcxWorker::close() noexcept {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  // Sends that are done may still wait in UCX's buffers.
  std::vector<void*> flushes;
  ucp_request_param_t param{};
  for (const auto& peer : peers_) {
    if (peer->state != Peer::State::kOpen || peer->failed) continue;
    void* const request = ucx_.ep_flush_nbx(peer->endpoint, &param);
    if (UCS_PTR_IS_PTR(request)) flushes.push_back(request);
  }
  const auto flushed = [&] {
    return std::all_of(flushes.begin(), flushes.end(),
                       [&](void* request) { return ucx_.request_check_status(request) != UCS_INPROGRESS; });
  };
  auto deadline = Clock::now() + kFlushPatience;
  while (!flushed() && Clock::now() < deadline) ucx_.worker_progress(worker_);
  closed_ = true;
  for (const auto& peer : peers_) drop(*peer, Peer::State::kLost);
  deadline = Clock::now() + kClosePatience;
  const auto quiet = [&] {
    return in_flight_.empty() && std::none_of(peers_.begin(), peers_.end(), [](const auto& peer) { return peer->closing; });
  };
  std::vector<std::shared_ptr<UcxFlight>> waiting;
  for (const auto& [pointer, flight] : in_flight_) waiting.push_back(flight);
  for (const auto& flight : waiting) {
    if (flight->receive && flight->request != nullptr) ucx_.request_cancel(worker_, flight->request);
  }
  while (!quiet() && Clock::now() < deadline) {
    ucx_.worker_progress(worker_);
    settle();
  }
  for (void* request : flushes) ucx_.request_free(request);
  for (auto& [pointer, flight] : in_flight_) {
    finish(*flight, UCS_ERR_CANCELED);
    abandoned_.push_back(std::move(flight));
  }
  in_flight_.clear();
  wake();
}

void UcxWorker::on_sent(void* request, ucs_status_t status, void* data) {
  auto& flight = *static_cast<UcxFlight*>(data);
  UcxWorker& worker = *flight.worker;
  worker.finish(flight, status);
  worker.in_flight_.erase(&flight);
  worker.ucx_.request_free(request);
}

void UcxWorker::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* data) {
  auto& flight = *static_cast<UcxFlight*>(data);
  UcxWorker& worker = *flight.worker;
  if (!flight.done && info != nullptr) {
    flight.source = static_cast<int>(info->sender_tag >> kUcxTagBits);
    flight.bytes = info->length;
  }
  worker.finish(flight, status);
  worker.in_flight_.erase(&flight);
  worker.ucx_.request_free(request);
}

void UcxWorker::on_freed(void* request, ucs_status_t /*status*/, void* worker) {
  static_cast<UcxWorker*>(worker)->ucx_.request_free(request);
}

void UcxWorker::on_closed(void* request, ucs_status_t /*status*/, void* data) {
  auto& peer = *static_cast<Peer*>(data);
  peer.closing = false;
  peer.worker->ucx_.request_free(request);
}

void UcxWorker::on_failure(void* data, ucp_ep_h /*endpoint*/, ucs_status_t /*status*/) {
  auto& peer = *static_cast<Peer*>(data);
  peer.failed = true;
  peer.worker->failures_ = true;
}

ucs_status_t UcxWorker::on_hello(void* /*arg*/, const void* /*header*/, std::size_t /*header_length*/, void* /*data*/,
                                 std::size_t /*length*/, const ucp_am_recv_param_t* /*param*/) {
  return UCS_OK;
}

}  // namespace wirewise::comm

#endif
