#include "wirewise/comm/thread_wires.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"

namespace wirewise::comm {

/// All ranks' mailboxes, under one lock. A send is taken at once by copying, as a small message is on a real network.
class ThreadSwitch {
 public:
  struct Message {
    int source;
    std::uint64_t tag;
    std::vector<std::byte> data;
  };
  struct Receive {
    int source;
    std::uint64_t tag;
    std::byte* data;
    std::size_t room;
    bool done = false;
    bool too_long = false;
    int from = kAnyPeer;
    std::size_t bytes = 0;
  };
  struct Rank {
    std::deque<Message> unexpected;
    std::deque<Receive*> receives;
    std::vector<std::pair<int, std::string>> news;
    std::uint64_t moved = 0;
    bool gone = false;
  };
  explicit ThreadSwitch(int ranks) : by_rank(static_cast<std::size_t>(ranks)) {}

  Rank& of(int r) { return by_rank[static_cast<std::size_t>(r)]; }

  static void give(Receive& receive, const Message& message) {
    receive.from = message.source;
    receive.bytes = message.data.size();
    receive.too_long = message.data.size() > receive.room;
    if (!receive.too_long && !message.data.empty()) std::memcpy(receive.data, message.data.data(), message.data.size());
    receive.done = true;
  }
  static bool fits(const Receive& receive, const Message& message) {
    return receive.tag == message.tag && (receive.source == kAnyPeer || receive.source == message.source);
  }
  void moved(Rank& rank) {
    ++rank.moved;
    changed.notify_all();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Rank> by_rank;
};

namespace {

class SentTransfer final : public Transfer {
 public:
  SentTransfer(int from, std::size_t bytes) : from_(from), bytes_(bytes) {}
  bool done() override { return true; }
  [[nodiscard]] int source() const noexcept override { return from_; }
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }

 private:
  int from_;
  std::size_t bytes_;
};

class ReceiveTransfer final : public Transfer {
 public:
  ReceiveTransfer(std::shared_ptr<ThreadSwitch> middle, int rank, ThreadSwitch::Receive receive)
      : middle_(std::move(middle)), rank_(rank), receive_(receive) {
    const std::lock_guard lock(middle_->mutex);
    ThreadSwitch::Rank& own = middle_->of(rank_);
    for (auto it = own.unexpected.begin(); it != own.unexpected.end(); ++it) {
      if (!ThreadSwitch::fits(receive_, *it)) continue;
      ThreadSwitch::give(receive_, *it);
      own.unexpected.erase(it);
      return;
    }
    own.receives.push_back(&receive_);
  }
  ~ReceiveTransfer() override {
    const std::lock_guard lock(middle_->mutex);
    std::erase(middle_->of(rank_).receives, &receive_);
  }
  ReceiveTransfer(const ReceiveTransfer&) = delete;
  ReceiveTransfer& operator=(const ReceiveTransfer&) = delete;

  bool done() override {
    const std::lock_guard lock(middle_->mutex);
    if (receive_.too_long) {
      throw Error(ErrorKind::kMismatch, "a message of " + std::to_string(receive_.bytes) + " bytes came where " + std::to_string(receive_.room) +
                                            " were expected.");
    }
    return receive_.done;
  }
  [[nodiscard]] int source() const noexcept override { return receive_.from; }
  [[nodiscard]] std::size_t bytes() const noexcept override { return receive_.bytes; }

 private:
  std::shared_ptr<ThreadSwitch> middle_;
  int rank_;
  ThreadSwitch::Receive receive_;
};

class ThreadNetwork final : public Network {
 public:
  ThreadNetwork(std::shared_ptr<ThreadSwitch> middle, int rank) : middle_(std::move(middle)), rank_(rank) {}

  std::unique_ptr<Transfer> send(int peer, std::uint64_t tag, const void* data, std::size_t bytes) override {
    const auto* const from = static_cast<const std::byte*>(data);
    const ThreadSwitch::Message message{rank_, tag, std::vector<std::byte>(from, from + bytes)};
    const std::lock_guard lock(middle_->mutex);
    ThreadSwitch::Rank& target = middle_->of(peer);
    bool taken = false;
    for (auto it = target.receives.begin(); it != target.receives.end() && !taken; ++it) {
      if (!ThreadSwitch::fits(**it, message)) continue;
      ThreadSwitch::give(**it, message);
      target.receives.erase(it);
      taken = true;
      break;
    }
    if (!taken) target.unexpected.push_back(message);
    middle_->moved(target);
    return std::make_unique<SentTransfer>(rank_, bytes);
  }
  std::unique_ptr<Transfer> recv(int peer, std::uint64_t tag, void* data, std::size_t bytes) override {
    return std::make_unique<ReceiveTransfer>(middle_, rank_, ThreadSwitch::Receive{peer, tag, static_cast<std::byte*>(data), bytes});
  }
  int probe(std::uint64_t tag) override {
    const std::lock_guard lock(middle_->mutex);
    for (const ThreadSwitch::Message& message : middle_->of(rank_).unexpected) {
      if (message.tag == tag) return message.source;
    }
    return kAnyPeer;
  }
  bool progress() override {
    const std::lock_guard lock(middle_->mutex);
    return std::exchange(seen_, middle_->of(rank_).moved) != middle_->of(rank_).moved;
  }
  void sleep(std::chrono::nanoseconds most) override {
    std::unique_lock lock(middle_->mutex);
    const std::uint64_t before = seen_;
    middle_->changed.wait_for(lock, most, [&] { return middle_->of(rank_).moved != before; });
  }
  void wake() noexcept override {
    const std::lock_guard lock(middle_->mutex);
    middle_->moved(middle_->of(rank_));
  }
  [[nodiscard]] std::string describe() const override { return "queues between threads"; }

 private:
  std::shared_ptr<ThreadSwitch> middle_;
  int rank_;
  std::uint64_t seen_ = 0;
};

class ThreadChannels final : public Channels {
 public:
  ThreadChannels(std::shared_ptr<ThreadSwitch> middle, int rank, std::vector<int> peers)
      : middle_(std::move(middle)), rank_(rank), peers_(std::move(peers)) {}
  ~ThreadChannels() override {
    const std::lock_guard lock(middle_->mutex);
    middle_->of(rank_).gone = true;
  }
  ThreadChannels(const ThreadChannels&) = delete;
  ThreadChannels& operator=(const ThreadChannels&) = delete;

  std::vector<int> dead() override {
    const std::lock_guard lock(middle_->mutex);
    std::vector<int> ranks;
    for (const int peer : peers_) {
      if (middle_->of(peer).gone) ranks.push_back(peer);
    }
    return ranks;
  }
  void tell(int peer, std::string_view message) noexcept override {
    const std::lock_guard lock(middle_->mutex);
    for (const int r : peers_) {
      if (peer != kAnyPeer && peer != r) continue;
      middle_->of(r).news.emplace_back(rank_, std::string(message));
      middle_->moved(middle_->of(r));
    }
  }
  std::vector<std::pair<int, std::string>> heard() override {
    const std::lock_guard lock(middle_->mutex);
    return std::exchange(middle_->of(rank_).news, {});
  }

 private:
  std::shared_ptr<ThreadSwitch> middle_;
  int rank_;
  std::vector<int> peers_;
};

class ThreadEnd final : public WireEnd {
 public:
  explicit ThreadEnd(std::shared_ptr<ThreadSwitch> middle) : middle_(std::move(middle)) {}
  /// The switch's address: rank 0's is the one that all use.
  [[nodiscard]] std::string card() const override {
    const std::shared_ptr<ThreadSwitch>* const place = &middle_;
    return {reinterpret_cast<const char*>(&place), sizeof place};
  }
  Wires connect(int rank, const HostMap& hosts, const std::vector<std::string>& cards, std::chrono::steady_clock::time_point,
                const Acquaintance&) override {
    const std::shared_ptr<ThreadSwitch>* place = nullptr;
    std::memcpy(&place, cards.front().data(), sizeof place);
    const std::shared_ptr<ThreadSwitch> middle = *place;
    return {std::make_shared<ThreadNetwork>(middle, rank), std::make_shared<ThreadChannels>(middle, rank, hosts.rails(rank))};
  }

 private:
  std::shared_ptr<ThreadSwitch> middle_;
};

}  // namespace

std::unique_ptr<WireEnd> make_thread_end(int ranks) { return std::make_unique<ThreadEnd>(std::make_shared<ThreadSwitch>(ranks)); }

}  // namespace wirewise::comm
