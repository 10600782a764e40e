// Ranks as threads that save a checkpoint together, and model states to save: each element's value tells its tensor and place.
#pragma once

#include <barrier>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/train/checkpoint.h"

namespace wirewise::testing {

/// The agreement of `ranks` threads.
class Agreement {
 public:
  explicit Agreement(int ranks) : barrier_(ranks) {}
  void agree(int rank, const std::string& failure) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure.empty()) failure_ = "rank " + std::to_string(rank) + ": " + failure;
    }
    barrier_.arrive_and_wait();
    std::string seen;
    {
      const std::lock_guard lock(mutex_);
      seen = failure_;
    }
    barrier_.arrive_and_wait();
    if (!seen.empty()) throw Error(ErrorKind::kFailed, seen);
  }

 private:
  std::barrier<> barrier_;
  std::mutex mutex_;
  std::string failure_;
};

/// Runs `body(rank, agree)` on threads; returns what each rank threw (empty: nothing).
inline std::vector<std::string> run_ranks(int ranks, const std::function<void(int, const AgreeFunction&)>& body) {
  Agreement agreement(ranks);
  std::vector<std::string> thrown(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank, [&](const std::string& failure) { agreement.agree(rank, failure); });
      } catch (const std::exception& caught) {
        thrown[static_cast<std::size_t>(rank)] = caught.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return thrown;
}

struct Tensor {
  std::vector<std::int64_t> shape;
  DType dtype = DType::kFloat32;
  std::vector<unsigned char> bytes;
  [[nodiscard]] std::uint64_t numel() const { return bytes.size() / size_of(dtype); }
};
using ModelState = std::map<std::string, Tensor>;

inline ModelState random_state(std::mt19937_64& random, int tensors, std::int64_t largest) {
  constexpr DType kTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kUInt8};
  ModelState state;
  for (int i = 0; i < tensors; ++i) {
    Tensor tensor;
    tensor.dtype = kTypes[random() % 4];
    std::uint64_t numel = 1;
    for (std::size_t d = 0, dims = random() % 3; d <= dims; ++d) {
      tensor.shape.push_back(1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(d == 0 ? largest : 5)));
      numel *= static_cast<std::uint64_t>(tensor.shape.back());
    }
    tensor.bytes.resize(numel * size_of(tensor.dtype));
    for (auto& byte : tensor.bytes) byte = static_cast<unsigned char>(random());
    state["model/layer." + std::to_string(i) + ".weight"] = std::move(tensor);
  }
  return state;
}

/// Cuts every tensor at random places and deals the pieces to the ranks.
inline std::vector<std::vector<Fragment>> deal(const ModelState& state, int ranks, std::mt19937_64& random) {
  std::vector<std::vector<Fragment>> out(static_cast<std::size_t>(ranks));
  for (const auto& [name, tensor] : state) {
    for (std::uint64_t offset = 0; offset < tensor.numel();) {
      const std::uint64_t left = tensor.numel() - offset;
      const std::uint64_t length = random() % 3 == 0 ? left : 1 + random() % left;
      out[random() % out.size()].push_back(
          {name, tensor.shape, offset, length, tensor.dtype, tensor.bytes.data() + offset * size_of(tensor.dtype)});
      offset += length;
    }
  }
  return out;
}

inline std::vector<std::string> save_on(int ranks, const std::filesystem::path& folder, std::uint64_t step,
                                        const std::vector<std::vector<Fragment>>& fragments, const TrainState& state, int keep = 0) {
  return run_ranks(ranks, [&](int rank, const AgreeFunction& agree) {
    save_checkpoint(folder, step, rank, ranks, fragments[static_cast<std::size_t>(rank)], state, keep, agree);
  });
}

}  // namespace wirewise::testing
