// send and recv between ranks of different hosts. A small message travels with its header; a large one follows it, once the receiver has
// seen that both sides mean the same.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "wirewise/comm/spanning_operation.h"

namespace wirewise::comm {

class SpanningMessage : public SpanningOperation {
 public:
  using SpanningOperation::SpanningOperation;
  [[nodiscard]] bool collective() const noexcept override { return false; }
  [[nodiscard]] std::vector<Missing> missing() const override;
};

class SpanningSend final : public SpanningMessage {
 public:
  SpanningSend(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options, const void* data);

 private:
  void begin() override;
  const std::byte* data_;
  std::vector<std::byte> header_;
};

class SpanningRecv final : public SpanningMessage {
 public:
  /// The fingerprint's root may be kAnySource: then ranks of this host send, too.
  SpanningRecv(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options, void* data);
  [[nodiscard]] int source() const noexcept override { return fingerprint.root; }

 private:
  void begin() override;
  /// Looks for a message of any rank, and begins to receive it. True when there was one.
  bool find_source();
  void receive();
  std::byte* data_;
};

}  // namespace wirewise::comm
