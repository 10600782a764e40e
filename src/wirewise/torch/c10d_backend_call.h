// Parts of the backend that its source files share.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "wirewise/torch/c10d_backend.h"

namespace wirewise {

/// One call of the backend on its way to a WirewiseWork.
struct WirewiseBackend::Call {
  Call(c10d::OpType type, const char* title, Milliseconds call_timeout, bool is_async) : timeout(call_timeout), async(is_async) {
    request.type = type;
    request.title = title;
  }
  WirewiseWork::Request request;
  Milliseconds timeout;  // not above 0: the backend's
  bool async;
  std::optional<c10::Device> device{};  // of a call without tensors
};

/// Throws bad input unless `fulls` and `shards` pair up: equal types, and each full one `size` times its shard.
void check_pairs(const std::string& operation, std::span<const at::Tensor> fulls, std::span<const at::Tensor> shards,
                 const std::string& full_name, const std::string& shard_name, int size);

}  // namespace wirewise
