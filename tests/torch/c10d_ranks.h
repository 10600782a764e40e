// A process group whose ranks are threads of the test.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/torch/c10d_backend.h"

namespace wirewise::testing {

using BackendPtr = c10::intrusive_ptr<WirewiseBackend>;
using Tensors = std::vector<at::Tensor>;

inline std::vector<BackendPtr> make_ranks(int size, std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  std::vector<BackendPtr> backends;
  for (auto& communicator : make_thread_communicators(size)) {
    backends.push_back(c10::make_intrusive<WirewiseBackend>(std::move(communicator), timeout));
  }
  return backends;
}

/// Runs `rank_main` once for each rank, as threads; a thread's exception fails the test.
inline void run_ranks(const std::vector<BackendPtr>& backends, const std::function<void(WirewiseBackend&, int)>& rank_main) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < backends.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        rank_main(*backends[rank], static_cast<int>(rank));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void run_ranks(int size, const std::function<void(WirewiseBackend&, int)>& rank_main) {
  const auto backends = make_ranks(size);
  run_ranks(backends, rank_main);
}

/// The error that `call` throws.
inline Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a wirewise error: " << error.what();
    return Error(ErrorKind::kFailed, error.what());
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorKind::kFailed, "");
}

inline void expect_parts(const Error& error, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
}

}  // namespace wirewise::testing
