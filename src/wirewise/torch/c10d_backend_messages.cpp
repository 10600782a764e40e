// Messages between two ranks, and the barrier that is made of them because it must tell who is missing.
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/torch/c10d_backend.h"
#include "wirewise/torch/c10d_backend_call.h"

namespace wirewise {
namespace {

// Tags of the monitored barrier's messages; users' tags are not negative.
constexpr int kHelloTag = -1001;   // to rank 0: I came
constexpr int kHereTag = -1002;    // from rank 0: so did I
constexpr int kPassedTag = -1003;  // from rank 0: all did

constexpr std::byte kNoData{};
constexpr ConstBuffer kEmpty{&kNoData, DType::kUInt8};

}  // namespace

WirewiseBackend::WorkPtr WirewiseBackend::send(Tensors& tensors, int peer, int tag) {
  Call call(c10d::OpType::SEND, "wirewise:send", c10d::kUnsetTimeout, true);
  const at::Tensor& tensor = only_tensor(tensors, "send");
  check_rank(peer, "peer", "send");
  call.request.inputs = tensors;
  const at::Tensor staged = call.request.staging.input(movable(tensor, "send"));
  const CallOptions how = call_options(call);
  return run(std::move(call), {[&](Communicator& by) { return by.send(read_buffer(staged), count_of(staged), peer, tag, how); }});
}

WirewiseBackend::WorkPtr WirewiseBackend::recv(Tensors& tensors, int peer, int tag) {
  check_rank(peer, "peer", "recv");
  return receive("wirewise:recv", c10d::OpType::RECV, tensors, peer, tag);
}

WirewiseBackend::WorkPtr WirewiseBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive("wirewise:recvAnySource", c10d::OpType::RECVANYSOURCE, tensors, kAnySource, tag);
}

WirewiseBackend::WorkPtr WirewiseBackend::receive(const char* title, c10d::OpType type, Tensors& tensors, int peer, int tag) {
  Call call(type, title, c10d::kUnsetTimeout, true);
  const at::Tensor& tensor = only_tensor(tensors, "recv");
  call.request.inputs = tensors;  // profiles show their shapes
  call.request.outputs = tensors;
  call.request.source = peer;
  const at::Tensor staged = call.request.staging.output(movable(tensor, "recv"));
  const CallOptions how = call_options(call);
  return run(std::move(call), {[&](Communicator& by) { return by.recv(write_buffer(staged), count_of(staged), peer, tag, how); }});
}

// Rank 0 hears from each rank, and says so to all. Two answers: one that it came itself, whose deadline is the caller's, and one that all
// did, which rank 0 gives or denies within its own deadline.
void WirewiseBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const Milliseconds timeout = options.timeout >= Milliseconds(0) ? options.timeout : Milliseconds(timeout_ms_.load());
  ++sequence_;
  try {
    if (getRank() == 0) {
      count_in(timeout, wait_all_ranks);
    } else {
      wait_for_rank_0(timeout);
    }
  } catch (const Error& error) {
    auto healthy = c10d::ErrorType::SUCCESS;
    health_->compare_exchange_strong(healthy, error.kind() == ErrorKind::kTimeout ? c10d::ErrorType::TIMEOUT : c10d::ErrorType::REMOTE_ERROR);
    throw;
  }
}

void WirewiseBackend::count_in(Milliseconds timeout, bool all) {
  struct Count {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<bool> came;
    std::size_t missing = 0;
    std::exception_ptr error;
  };
  const auto ranks = static_cast<std::size_t>(getSize());
  const auto count = std::make_shared<Count>();
  count->came.resize(ranks);
  count->came[0] = true;
  count->missing = ranks - 1;
  CallOptions options;
  options.label = "monitored barrier";
  options.timeout = timeout + std::chrono::hours(1);  // the deadline is looked after here
  const auto within = std::chrono::steady_clock::now() + timeout;
  for (int rank = 1; rank < getSize(); ++rank) {
    communicator().send(kEmpty, 0, rank, kHereTag, options);
    communicator().recv({nullptr, DType::kUInt8}, 0, rank, kHelloTag, options).then([count, rank](const std::exception_ptr& error) {
      const std::lock_guard lock(count->mutex);
      if (error) {
        count->error = error;
      } else {
        count->came[static_cast<std::size_t>(rank)] = true;
        --count->missing;
      }
      count->changed.notify_all();
    });
  }
  std::unique_lock lock(count->mutex);
  count->changed.wait_until(lock, within, [&] { return count->missing == 0 || count->error; });
  if (count->error) std::rethrow_exception(count->error);
  if (count->missing == 0 && timeout > Milliseconds(0)) {
    lock.unlock();
    for (int rank = 1; rank < getSize(); ++rank) communicator().send(kEmpty, 0, rank, kPassedTag, options);
    return;
  }
  std::string names;
  int named = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (count->came[rank] || (named > 0 && !all)) continue;
    names += (named++ > 0 ? ", " : "") + std::to_string(rank);
  }
  lock.unlock();
  const std::string span = std::to_string(timeout.count()) + " ms";
  const std::string sentence = timeout == Milliseconds(0) ? "Rank 0 timed out in monitoredBarrier after 0 ms."
                                                          : std::string(named > 1 ? "Ranks " : "Rank ") + names + " failed to pass monitoredBarrier in " + span + ".";
  if (devices_) devices_->host()->abort(sentence);
  throw Error(ErrorKind::kTimeout, sentence, "See what they do, or raise the timeout.");
}

void WirewiseBackend::wait_for_rank_0(Milliseconds timeout) {
  CallOptions options;
  options.label = "monitored barrier";
  options.timeout = timeout > Milliseconds(0) ? timeout : Milliseconds(1);
  try {
    communicator().send(kEmpty, 0, 0, kHelloTag, options);
    communicator().recv({nullptr, DType::kUInt8}, 0, 0, kHereTag, options).wait();
    options.timeout += std::chrono::seconds(10);  // rank 0 tells within its own deadline
    communicator().recv({nullptr, DType::kUInt8}, 0, 0, kPassedTag, options).wait();
  } catch (const Error& error) {
    throw Error(error.kind() == ErrorKind::kAborted ? ErrorKind::kTimeout : error.kind(),
                "Rank " + std::to_string(getRank()) +
                    " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0: " + error.sentence(),
                error.remedy());
  }
}

}  // namespace wirewise
