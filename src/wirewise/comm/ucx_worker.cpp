#include "wirewise/comm/ucx_worker.h"

#ifdef WIREWISE_WITH_UCX

#include <net/if.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/comm/network.h"
#include "wirewise/comm/ucx_settings.h"
#include "wirewise/comm/signals_blocked.h"

namespace wirewise::comm {
namespace {

constexpr ucp_tag_t kEveryBit = ~ucp_tag_t{0};
constexpr unsigned kHello = 1;                            // the active message that only opens a connection

ucp_tag_t tag_of(int source, std::uint64_t tag) { return (static_cast<ucp_tag_t>(source) << kUcxTagBits) | tag; }

/// The statuses of a connection that is no more, as against a request that UCX refuses.
bool means_lost(ucs_status_t status) {
  switch (status) {
    case UCS_ERR_CANCELED:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_TIMED_OUT:
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_IO_ERROR: return true;
    default: return false;
  }
}

ucp_context_h make_context(const UcxLibrary& ucx, const NetworkInterface& interface) {
  // UCX itself passes over a name that it doesn't find, and comes up with transports inside the process alone.
  if (!interface.rdma_only && ::if_nametoindex(interface.name.c_str()) == 0) {
    throw Error(ErrorKind::kFailed, "UCX can't use the network interface " + printable(interface.name) + ": it doesn't exist here.",
                "Name one that does with WIREWISE_NET.");
  }
  ucp_config_t* config = nullptr;
  const auto refuse = [&](const std::string& what, ucs_status_t status) {
    if (config != nullptr) ucx.config_release(config);
    throw Error(ErrorKind::kFailed,
                "UCX can't use the network interface " + printable(interface.name) + ": " + what + ": " + ucx.words(status) + ".",
                "See that the interface is up, and that the UCX_* variables set here (UCX_TLS, UCX_NET_DEVICES) allow it.");
  };
  ucs_status_t status = ucx.config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) refuse("its settings can't be read", status);
  for (const auto& [name, value] : ucx_settings(interface, [](const char* variable) { return std::getenv(variable); })) {
    status = ucx.config_modify(config, name.c_str(), value.c_str());
    if (status == UCS_ERR_NO_ELEM && name.starts_with("TCP_")) continue;  // before UCX 1.12; it only goes faster with it
    if (status != UCS_OK) refuse("setting " + name + "=" + value, status);
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  // The oldest interface that has all that is used here, so that no version warns of another's.
  status = ucx.init_version(UCP_API_MAJOR, 11, &params, config, &context);
  if (status != UCS_OK) refuse("no transport comes up", status);
  ucx.config_release(config);
  return context;
}

}  // namespace

UcxWorker::UcxWorker(const NetworkInterface& interface)
    : ucx_(load_ucx()), interface_(interface), wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!wake_fd_.valid()) throw Error(ErrorKind::kFailed, "No event descriptor can be had.", "Raise the limit on open files (ulimit -n).");
  const SignalsBlocked blocked;  // UCX starts a thread
  context_ = make_context(ucx_, interface);
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucx_.worker_create(context_, &params, &worker_);
  const char* what = "no worker can be made";
  if (status == UCS_OK) {
    what = "it gives no descriptor to wait on";
    status = ucx_.worker_get_efd(worker_, &worker_fd_);
  }
  if (status == UCS_OK) {
    what = "it takes no message handler";
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
    handler.id = kHello;
    handler.cb = &UcxWorker::on_hello;
    status = ucx_.worker_set_am_recv_handler(worker_, &handler);
  }
  if (status != UCS_OK) {
    if (worker_ != nullptr) ucx_.worker_destroy(worker_);
    ucx_.cleanup(context_);
    throw Error(ErrorKind::kFailed,
                "UCX can't use the network interface " + printable(interface.name) + ": " + what + ": " + ucx_.words(status) + ".",
                "See that the interface is up, and that the UCX_* variables set here allow it.");
  }
}

UcxWorker::~UcxWorker() {
  close();
  ucx_.worker_destroy(worker_);
  ucx_.cleanup(context_);
}

std::string UcxWorker::address() {
  const std::lock_guard lock(mutex_);
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  const ucs_status_t status = ucx_.worker_get_address(worker_, &address, &length);
  if (status != UCS_OK) throw Error(ErrorKind::kFailed, "UCX doesn't tell its address: " + ucx_.words(status) + ".");
  std::string text(reinterpret_cast<const char*>(address), length);
  ucx_.worker_release_address(worker_, address);
  return text;
}

void UcxWorker::connect(int rank, const std::vector<std::string>& addresses) {
  const std::lock_guard lock(mutex_);
  rank_ = rank;
  for (const std::string& address : addresses) {
    auto peer = std::make_unique<Peer>();
    peer->worker = this;
    peer->rank = static_cast<int>(peers_.size());
    peer->address = address;
    peers_.push_back(std::move(peer));
  }
}

UcxWorker::Peer& UcxWorker::peer_of(int rank) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers_.size() || peers_[static_cast<std::size_t>(rank)]->address.empty()) {
    throw Error(ErrorKind::kFailed, "rank " + std::to_string(rank) + " has no address on this network.");
  }
  return *peers_[static_cast<std::size_t>(rank)];
}

void UcxWorker::open(Peer& peer, bool say_hello) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxWorker::on_failure;
  params.err_handler.arg = &peer;
  const ucs_status_t status = ucx_.ep_create(worker_, &params, &peer.endpoint);
  if (status != UCS_OK) {
    peer.endpoint = nullptr;
    throw Error(
        ErrorKind::kFailed,
        "UCX finds no way from " + printable(interface_.name) + " to rank " + std::to_string(peer.rank) + ": " + ucx_.words(status) + ".",
        "Choose interfaces of one network on all hosts (WIREWISE_NET), and the same UCX_TLS.");
  }
  peer.state = Peer::State::kOpen;
  if (!say_hello) return;
  // An endpoint that never sends is never connected, and so never learns that its peer died.
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &UcxWorker::on_freed;
  param.user_data = this;
  (void)ucx_.am_send_nbx(peer.endpoint, kHello, nullptr, 0, nullptr, 0, &param);
}

void UcxWorker::finish(UcxFlight& flight, ucs_status_t status) noexcept {
  if (flight.done.load(std::memory_order_relaxed)) return;
  using End = UcxFlight::End;
  using State = Peer::State;
  flight.status = status;
  const State state = flight.peer < 0 ? State::kOpen : peers_[static_cast<std::size_t>(flight.peer)]->state;
  flight.end = status == UCS_OK                      ? End::kFine
               : status == UCS_ERR_MESSAGE_TRUNCATED ? End::kTruncated
               : closed_                             ? End::kClosed
               : state == State::kBrokenOff          ? End::kBrokenOff
               : means_lost(status)                  ? End::kPeerLost
                                                     : End::kFailed;
  flight.request = nullptr;
  ++finished_;
  flight.done.store(true, std::memory_order_release);
}

void UcxWorker::keep(const std::shared_ptr<UcxFlight>& flight, void* request) {
  flight->request = request;
  in_flight_.emplace(flight.get(), flight);
}

std::shared_ptr<UcxFlight> UcxWorker::send(int rank, std::uint64_t tag, const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto flight = std::make_shared<UcxFlight>();
  flight->worker = this;
  Peer& peer = peer_of(rank);
  flight->peer = rank;
  flight->source = rank_;
  flight->bytes = flight->capacity = bytes;
  settle();
  if (closed_ || peer.state == Peer::State::kLost || peer.state == Peer::State::kBrokenOff) {
    finish(*flight, UCS_ERR_CANCELED);
    return flight;
  }
  if (peer.state == Peer::State::kFresh) open(peer, false);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &UcxWorker::on_sent;
  param.user_data = flight.get();
  void* const request = ucx_.tag_send_nbx(peer.endpoint, data, bytes, tag_of(rank_, tag), &param);
  if (UCS_PTR_IS_PTR(request)) {
    keep(flight, request);
  } else {
    finish(*flight, UCS_PTR_STATUS(request));
  }
  return flight;
}

int UcxWorker::probe(std::uint64_t tag) {
  const std::lock_guard lock(mutex_);
  if (closed_) return kAnyPeer;
  ucp_tag_recv_info_t info{};
  constexpr int kLeaveIt = 0;
  if (ucx_.tag_probe_nb(worker_, tag_of(0, tag), kMostTag, kLeaveIt, &info) == nullptr) return kAnyPeer;
  return static_cast<int>(info.sender_tag >> kUcxTagBits);
}

std::shared_ptr<UcxFlight> UcxWorker::recv(int rank, std::uint64_t tag, void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto flight = std::make_shared<UcxFlight>();
  flight->worker = this;
  flight->receive = true;
  flight->peer = rank == kAnyPeer ? -1 : rank;
  flight->capacity = bytes;
  settle();
  if (closed_) {
    finish(*flight, UCS_ERR_CANCELED);
    return flight;
  }
  bool gone = false;
  if (rank == kAnyPeer) {
    gone = all_gone();
  } else {
    Peer& peer = peer_of(rank);
    if (peer.state == Peer::State::kFresh) open(peer, true);
    gone = peer.state != Peer::State::kOpen;
  }
  ucp_request_param_t param{};
  // UCX doesn't tell the length of a message that came in pieces and is there at once: have it tell by the callback always.
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = &UcxWorker::on_received;
  param.user_data = flight.get();
  const bool any = rank == kAnyPeer;
  void* const request = ucx_.tag_recv_nbx(worker_, data, bytes, tag_of(any ? 0 : rank, tag), any ? kMostTag : kEveryBit, &param);
  if (flight->done) return flight;  // told by the callback, before the call returned
  if (UCS_PTR_IS_PTR(request)) {
    keep(flight, request);
    // What a dead peer had sent before is still received; anything else never comes.
    if (gone) ucx_.request_cancel(worker_, request);
    if (gone && !flight->done) failures_ = true;  // it came in part: settle() ends it
  } else {
    finish(*flight, UCS_PTR_STATUS(request));
  }
  return flight;
}

bool UcxWorker::progress() {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  const std::uint64_t before = finished_;
  const bool moved = ucx_.worker_progress(worker_) != 0;
  settle();
  if (finished_ == before) return moved;
  seen_[std::this_thread::get_id()] = finished_;
  if (sleepers_ > 0) wake();
  return true;
}

void UcxWorker::sleep(std::chrono::nanoseconds most) {
  constexpr std::chrono::nanoseconds kShort = std::chrono::milliseconds(1);
  constexpr std::chrono::nanoseconds kBesideAnother = std::chrono::milliseconds(10);
  if (most.count() <= 0) return;
  bool alone = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    // What another thread's progress finished since this one looked last has nobody to wake any more.
    if (std::exchange(seen_[std::this_thread::get_id()], finished_) != finished_) return;
    const ucs_status_t status = ucx_.worker_arm(worker_);
    if (status == UCS_ERR_BUSY) return;  // something has moved already
    if (failures_ || status != UCS_OK) most = std::min(most, kShort);
    // One sleeper takes the wake-ups; others can't rely on seeing them, and look again soon.
    alone = sleepers_++ == 0;
    if (!alone) most = std::min(most, kBesideAnother);
  }
  pollfd descriptors[2] = {{worker_fd_, POLLIN, 0}, {wake_fd_.get(), POLLIN, 0}};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
  const timespec time{static_cast<time_t>(seconds.count()), static_cast<long>((most - seconds).count())};
  const int ready = ::ppoll(descriptors, 2, &time, nullptr);
  --sleepers_;
  if (alone && ready > 0 && descriptors[1].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_fd_.get(), &count, sizeof count);
  }
}

void UcxWorker::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(wake_fd_.get(), &one, sizeof one);  // full only when it is awake already
}

std::string UcxWorker::describe() {
  const std::lock_guard lock(mutex_);
  if (interface_.rdma.empty()) return "tcp over " + interface_.name;
  for (const auto& peer : peers_) {
    if (peer->endpoint == nullptr || peer->rank == rank_) continue;
    char* text = nullptr;
    std::size_t length = 0;
    std::FILE* const stream = ::open_memstream(&text, &length);
    if (stream == nullptr) break;
    ucx_.ep_print_info(peer->endpoint, stream);
    std::fclose(stream);
    const std::string info(text, length);
    std::free(text);
    // "#   lane[0]:  5:rc_mlx5/mlx5_0:1.0 md[4] …": the first lane carries most.
    const std::size_t lane = info.find("lane[0]:");
    const std::size_t colon = lane == std::string::npos ? lane : info.find(':', lane + 8);
    const std::size_t slash = colon == std::string::npos ? colon : info.find('/', colon);
    const std::size_t end = slash == std::string::npos ? slash : info.find_first_of(". ", slash);
    if (end != std::string::npos) return info.substr(colon + 1, slash - colon - 1) + " over " + info.substr(slash + 1, end - slash - 1);
  }
  std::vector<std::string> devices = interface_.rdma;
  if (!interface_.rdma_only) devices.push_back(interface_.name);
  return "UCX over " + join(devices, ", ");
}

}  // namespace wirewise::comm

#endif
