// Handle of a c10d operation over one or more operations of a communicator: wait() drives them on the caller's thread, and a
// future completes without anyone waiting, as DDP and communication hooks need.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "wirewise/comm/communicator.h"
#include "wirewise/torch/c10d_callback_threads.h"
#include "wirewise/torch/c10d_tensors.h"

namespace wirewise {

/// The first failure of a backend's operations, for Backend::getError().
using BackendHealth = std::atomic<c10d::ErrorType>;

class WirewiseWork final : public c10d::Work {
 public:
  struct Request {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* title = "wirewise";   // in profiles: "wirewise:all_reduce"
    std::vector<at::Tensor> outputs;  // result() and the future's value: the user's tensors
    std::vector<at::Tensor> inputs;   // shown in profiles
    Staging staging;
    c10::Device device = c10::kCPU;   // of the tensors
    std::uint64_t sequence = 0;
    int source = kAnySource;  // of a recv
    std::shared_ptr<BackendHealth> health;
    std::shared_ptr<CallbackThreads> callbacks;
  };
  using Issue = std::function<wirewise::Work()>;

  /// Issues the operations in order and ties the handle to them. What `issues` throw is thrown on, and the tensors stay alive
  /// until those already issued are done.
  static c10::intrusive_ptr<WirewiseWork> start(int rank, Request request, const std::vector<Issue>& issues);

  /// A handle of all that `works` are: complete when they are, with their outputs one after the other.
  static c10::intrusive_ptr<WirewiseWork> join(int rank, c10d::OpType type, const char* title,
                                               const std::vector<c10::intrusive_ptr<WirewiseWork>>& works);

  /// Throws the operation's error. A timeout above 0 bounds this wait only: the operation goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  int sourceRank() const override;
  void synchronize() override { (void)wait(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return request_.sequence; }

  WirewiseWork(int rank, Request request);

 private:
  void one_done(const std::exception_ptr& error);
  void complete();
  /// Runs `listener` on the thread that completes the handle, its outputs written; at once when it is complete.
  void when_done(std::function<void(const std::exception_ptr&)> listener);
  void complete_future(const std::exception_ptr& error);

  Request request_;
  std::vector<wirewise::Work> operations_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  // Under mutex_: whether anyone may have hung a callback on the future, and whether that question is settled.
  bool future_given_ = false;
  bool future_settled_ = false;
  std::atomic<std::size_t> pending_{1};  // start() holds one until all are issued
  std::mutex error_mutex_;
  std::exception_ptr first_error_;
  bool done_ = false;  // under error_mutex_, as the listeners are
  std::vector<std::function<void(const std::exception_ptr&)>> listeners_;
};

}  // namespace wirewise
