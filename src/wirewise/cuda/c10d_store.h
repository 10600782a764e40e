// A wirewise::Store behind c10d::Store: ProcessGroupNCCL meets its ranks by it. The other way round is torch/store_c10d.h.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "wirewise/comm/store.h"

namespace wirewise::cuda {

class StoreForNccl final : public c10d::Store {
 public:
  StoreForNccl(std::shared_ptr<wirewise::Store> store, std::chrono::milliseconds timeout) : c10d::Store(timeout), store_(std::move(store)) {}

  using c10d::Store::get;
  using c10d::Store::set;
  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<StoreForNccl>(store_, timeout_); }
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override { store_->set(key, std::string(value.begin(), value.end())); }
  std::vector<std::uint8_t> get(const std::string& key) override {
    const std::string value = store_->get(key, timeout_);
    return {value.begin(), value.end()};
  }
  std::int64_t add(const std::string& key, std::int64_t value) override { return store_->add(key, value); }
  /// Keys stay: they are few, and the store dies with the job.
  bool deleteKey(const std::string&) override { return false; }
  bool check(const std::vector<std::string>& keys) override {
    try {
      for (const std::string& key : keys) (void)store_->get(key, std::chrono::milliseconds(1));
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  std::int64_t getNumKeys() override { TORCH_CHECK(false, "this store does not count its keys"); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    for (const std::string& key : keys) (void)store_->get(key, timeout);
  }

 private:
  std::shared_ptr<wirewise::Store> store_;
};

}  // namespace wirewise::cuda
