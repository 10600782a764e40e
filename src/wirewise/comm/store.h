// The key-value store that ranks meet in. Small on purpose: libtorch's TCPStore and FileStore fit behind it (see torch/), and
// FileStore here serves ranks of one host without libtorch and without a listening port.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace wirewise {

class Store {
 public:
  virtual ~Store() = default;
  /// Sets `key`; a later set replaces the value. Throws kStore when the store can't be reached.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits for `key` and returns its value. Throws kTimeout naming the key after `timeout`.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// Adds to the integer at `key` (absent counts as 0) and returns the sum. Atomic across ranks.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  /// Where it is, for errors: "the folder /tmp/job". Empty: unknown.
  [[nodiscard]] virtual std::string where() const { return {}; }
};

/// A store in a private folder of one host: a file a key, written aside and renamed, so readers never see half a value.
class FileStore final : public Store {
 public:
  explicit FileStore(std::filesystem::path folder);
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  [[nodiscard]] std::string where() const override { return "the folder " + folder_.string(); }

 private:
  std::filesystem::path folder_;
};

/// The same store with every key prefixed, so that several groups can share one.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store) : prefix_(std::move(prefix)), store_(std::move(store)) {}
  void set(const std::string& key, const std::string& value) override { store_->set(prefix_ + key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_->get(prefix_ + key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_->add(prefix_ + key, amount); }
  [[nodiscard]] std::string where() const override { return store_->where(); }

 private:
  std::string prefix_;
  std::shared_ptr<Store> store_;
};

}  // namespace wirewise
