#include "wirewise/cli/cluster_pairs.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "wirewise/base/error.h"

namespace wirewise {
namespace {

constexpr int kReadyTag = 3, kPatternTag = 4;

int rounds_of(int places) { return places < 2 ? 0 : places % 2 == 0 ? places - 1 : places; }

/// Round `step` of `steps` out of `all`: those that are left out are spread over all.
int spread(int step, int steps, int all) { return static_cast<int>(static_cast<std::int64_t>(step) * all / steps); }

class Exchange {
 public:
  Exchange(Communicator& communicator, Bytes bytes, const PairDevice& on)
      : communicator_(communicator), over_(on.communicator != nullptr ? *on.communicator : communicator), device_(on.device),
        words_(std::max<std::size_t>(static_cast<std::size_t>(bytes) / sizeof(std::uint64_t), 1)), data_(words_), memory_(data_.data()) {
    if (device_ == nullptr) return;
    stream_ = device_->make_stream();
    memory_ = device_->allocate(words_ * sizeof(std::uint64_t));
  }
  ~Exchange() {
    if (device_ != nullptr) device_->free(memory_);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void send(int to, std::uint64_t seed) {
    for (std::size_t word = 0; word < words_; ++word) data_[word] = pattern(seed, word);
    to_device();
    // The receiver's place must be ready and cleared: a message that is lost must not look like the one before.
    communicator_.recv({&nothing_, DType::kUInt8}, 0, to, kReadyTag).wait();
    over_.send({memory_, DType::kInt64}, words_, to, kPatternTag).wait();
    settle();
  }

  std::uint64_t receive(int from, std::uint64_t seed) {
    std::fill(data_.begin(), data_.end(), 0);
    to_device();
    communicator_.send({&nothing_, DType::kUInt8}, 0, from, kReadyTag).wait();
    over_.recv({memory_, DType::kInt64}, words_, from, kPatternTag).wait();
    if (device_ != nullptr) stream_->follow_current();
    if (device_ != nullptr) stream_->copy_to_host(data_.data(), memory_, words_ * sizeof(std::uint64_t));
    settle();
    std::uint64_t wrong = 0;
    for (std::size_t word = 0; word < words_; ++word) {
      for (std::uint64_t differs = data_[word] ^ pattern(seed, word); differs != 0; differs >>= 8) wrong += (differs & 0xff) != 0 ? 1 : 0;
    }
    return wrong;
  }

 private:
  void to_device() {
    if (device_ == nullptr) return;
    stream_->copy_to_device(memory_, data_.data(), words_ * sizeof(std::uint64_t));
    settle();
  }
  /// Waits for what was queued; a transfer that hangs ends with its communicator's deadline.
  void settle() {
    if (device_ == nullptr) return;
    stream_->follow_current();
    for (const auto event = stream_->record(); !event->passed();) over_.progress();
  }

  Communicator& communicator_;
  Communicator& over_;
  Accelerator* device_;
  std::size_t words_;
  std::vector<std::uint64_t> data_;
  void* memory_;
  std::unique_ptr<DeviceStream> stream_;
  std::byte nothing_{};
};

}  // namespace

std::vector<int> tournament_round(int places, int round) {
  // The circle method: one place stands, the others turn; an odd number leaves one place empty.
  const int even = places + places % 2;
  std::vector<int> partner(static_cast<std::size_t>(places), -1);
  const auto at = [&](int place) { return place == 0 ? 0 : (place - 1 + round) % (even - 1) + 1; };
  for (int place = 0; place < even / 2; ++place) {
    const int a = at(place);
    const int b = at(even - 1 - place);
    if (a >= places || b >= places) continue;
    partner[static_cast<std::size_t>(a)] = b;
    partner[static_cast<std::size_t>(b)] = a;
  }
  return partner;
}

std::vector<std::vector<int>> pair_rounds(std::span<const int> host_of_rank, int most) {
  const int ranks = static_cast<int>(host_of_rank.size());
  std::vector<std::vector<int>> rounds;
  if (rounds_of(ranks) <= most) {
    for (int round = 0; round < rounds_of(ranks); ++round) rounds.push_back(tournament_round(ranks, round));
    return rounds;
  }
  std::map<int, std::vector<int>> members;
  for (int rank = 0; rank < ranks; ++rank) members[host_of_rank[static_cast<std::size_t>(rank)]].push_back(rank);
  std::vector<std::vector<int>> hosts;
  std::size_t largest = 0;
  for (auto& [host, of_host] : members) {
    largest = std::max(largest, of_host.size());
    hosts.push_back(std::move(of_host));
  }
  const auto add = [&](int count, int all, const auto& partners) {
    for (int step = 0; step < count; ++step) {
      std::vector<int> partner(host_of_rank.size(), -1);
      partners(spread(step, count, all), partner);
      rounds.push_back(std::move(partner));
    }
  };
  const int inside = rounds_of(static_cast<int>(largest));
  add(std::min(inside, most), inside, [&](int round, std::vector<int>& partner) {
    for (const std::vector<int>& host : hosts) {
      const int places = static_cast<int>(host.size());
      if (round >= rounds_of(places)) continue;
      const std::vector<int> met = tournament_round(places, round);
      for (std::size_t place = 0; place < host.size(); ++place) {
        if (met[place] != -1) partner[static_cast<std::size_t>(host[place])] = host[static_cast<std::size_t>(met[place])];
      }
    }
  });
  const int between = rounds_of(static_cast<int>(hosts.size()));
  add(std::min(between, most), between, [&](int round, std::vector<int>& partner) {
    const std::vector<int> met = tournament_round(static_cast<int>(hosts.size()), round);
    for (std::size_t host = 0; host < hosts.size(); ++host) {
      if (met[host] == -1) continue;
      const std::vector<int>& other = hosts[static_cast<std::size_t>(met[host])];
      for (std::size_t place = 0; place < std::min(hosts[host].size(), other.size()); ++place) partner[static_cast<std::size_t>(hosts[host][place])] = other[place];
    }
  });
  return rounds;
}

PairCheck check_pairs(Communicator& communicator, std::span<const int> host_of_rank, Bytes bytes, int most_rounds, const PairDevice& on) {
  PairCheck check;
  check.on_device = on.device != nullptr;
  const auto ranks = static_cast<std::int64_t>(host_of_rank.size());
  check.possible = ranks * (ranks - 1) / 2;
  Exchange exchange(communicator, bytes, on);
  const int self = communicator.rank();
  std::uint64_t number = 0;
  std::vector<std::uint64_t> found(host_of_rank.size());
  for (const std::vector<int>& partners : pair_rounds(host_of_rank, most_rounds)) {
    const std::uint64_t round = ++number << 32;
    const int partner = partners[static_cast<std::size_t>(self)];
    std::uint64_t wrong = 0;
    if (partner != -1) {
      try {
        if (self < partner) exchange.send(partner, round + static_cast<std::uint64_t>(self));
        wrong = exchange.receive(partner, round + static_cast<std::uint64_t>(partner));
        if (self > partner) exchange.send(partner, round + static_cast<std::uint64_t>(self));
      } catch (const Error& error) {
        throw Error(error.kind(), "between ranks " + std::to_string(std::min(self, partner)) + " and " + std::to_string(std::max(self, partner)) + " data didn't pass: " + error.sentence(), error.remedy());
      }
    }
    communicator.all_gather({&wrong, DType::kUInt8}, {found.data(), DType::kUInt8}, sizeof wrong).wait();
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      if (partners[rank] > static_cast<int>(rank)) ++check.pairs;
      if (found[rank] > 0) check.faults.push_back({partners[rank], static_cast<int>(rank), found[rank]});
    }
  }
  return check;
}

}  // namespace wirewise
