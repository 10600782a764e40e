// libtorch's stores (TCPStore, FileStore, HashStore, and the prefixed one a process group hands over) behind wirewise::Store, so
// that a communicator meets its ranks in whatever store the program already has.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>

#include "wirewise/comm/store.h"

namespace wirewise {

/// The message of a libtorch error without its backtrace, which helps nobody in a sentence.
[[nodiscard]] std::string first_line(const std::exception& error);

/// A c10d store. Safe to share between threads: a waiting get() lets other calls through.
class C10dStore final : public Store {
 public:
  /// `name` says what the store is, for errors; host and port of a TCPStore, or the path of a FileStore, are added to it.
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store, const std::string& name = "the store");

  void set(const std::string& key, const std::string& value) override;
  /// A timeout of 0 looks once.
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  [[nodiscard]] std::string where() const override { return where_; }

  [[nodiscard]] const c10::intrusive_ptr<c10d::Store>& underlying() const noexcept { return store_; }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string where_;  // "the store at 10.0.0.1:29500"
};

}  // namespace wirewise
