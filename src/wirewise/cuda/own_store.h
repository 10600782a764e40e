// The store of a communicator of one rank.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "wirewise/base/error.h"
#include "wirewise/comm/store.h"

namespace wirewise::cuda {

/// What one rank alone tells itself.
class OwnStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  std::string get(const std::string& key, std::chrono::milliseconds) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    // Nobody else will set it, so waiting is in vain.
    if (found == values_.end()) throw Error(ErrorKind::kTimeout, "nothing was set for " + key + ".");
    return found->second;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const std::lock_guard lock(mutex_);
    const std::int64_t sum = (values_.contains(key) ? std::stoll(values_[key]) : 0) + amount;
    values_[key] = std::to_string(sum);
    return sum;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

}  // namespace wirewise::cuda
