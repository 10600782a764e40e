// A key-value store over TCP: one rank holds it, the others reach it. Where ranks of several hosts meet in a build without libtorch, whose
// TCPStore does that otherwise. It doesn't authenticate: it belongs on a trusted network, as that one does.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "wirewise/comm/listener.h"
#include "wirewise/comm/store.h"
#include "wirewise/comm/unique_fd.h"

namespace wirewise {

class TcpStore final : public Store {
 public:
  /// Holds the store and answers at `listener`'s address, `address`, for as long as it lives.
  TcpStore(const std::string& address, Listener&& listener);
  /// Reaches the store at `address` (numeric). Throws kStore when what listens there is none, or doesn't answer within `timeout`.
  TcpStore(const std::string& address, std::uint16_t port, std::chrono::milliseconds timeout);
  ~TcpStore() override;
  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  [[nodiscard]] std::string where() const override;

 private:
  struct Request;
  struct Reply;
  class Server;

  Reply ask(const Request& request, const std::string& doing);

  std::string where_;
  std::unique_ptr<Server> server_;  // of the rank that holds it
  std::mutex mutex_;                // one request at a time
  comm::UniqueFd socket_;           // of the others
};

}  // namespace wirewise
