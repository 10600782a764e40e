// send and recv. A small message is buffered and the send is complete; a large one is read from the sender's buffer where that is shared
// memory, else it goes through two chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "wirewise/comm/group.h"
#include "wirewise/comm/operation.h"

namespace wirewise::comm {

class SendOperation final : public Work::State {
 public:
  SendOperation(std::shared_ptr<Group> group, const Fingerprint& fingerprint, CallOptions options, const void* data);
  ~SendOperation() override;
  bool step() override;
  [[nodiscard]] bool retired() const noexcept override { return received_ && reached(Level::kComplete); }
  [[nodiscard]] std::vector<Missing> missing() const override { return {{fingerprint.root, false}}; }
  void release() noexcept override;
  [[nodiscard]] bool collective() const noexcept override { return false; }

 private:
  [[nodiscard]] Channel& channel();
  bool feed(MessageSlot& slot);

  const std::byte* data_;
  std::size_t bytes_;
  MessageMode mode_ = MessageMode::kBuffered;
  std::byte* block_ = nullptr;
  std::uint64_t place_ = 0;
  std::uint64_t rounds_ = 0;
  std::uint64_t published_ = 0;
  std::optional<std::uint64_t> index_;
  bool posted_ = false;
  bool received_ = false;
};

class RecvOperation final : public Work::State {
 public:
  RecvOperation(std::shared_ptr<Group> group, const Fingerprint& fingerprint, CallOptions options, void* data);
  bool step() override;
  [[nodiscard]] bool retired() const noexcept override { return reached(Level::kComplete); }
  [[nodiscard]] std::vector<Missing> missing() const override;
  [[nodiscard]] int source() const noexcept override;
  [[nodiscard]] bool collective() const noexcept override { return false; }

 private:
  template <typename Visit>
  void for_each_source(Visit visit);
  [[nodiscard]] Channel* channel_from(int source);
  [[nodiscard]] std::int32_t tag() const noexcept { return static_cast<std::int32_t>(fingerprint.hash); }
  void queue_up();
  bool match();
  bool match(int source);
  void take(int source, Channel& channel);

  std::byte* data_;
  std::size_t bytes_;
  std::size_t taken_ = 0;
  bool queued_ = false;
  int first_ = 0;  // of any source: the rank to look at first
  std::optional<std::uint64_t> index_;
};

}  // namespace wirewise::comm
