#include "wirewise/comm/spanning_operation.h"

#include <set>
#include <string>
#include <type_traits>

#include "wirewise/comm/move_operation.h"

namespace wirewise::comm {
namespace {

// Tags: two bits of class above what tells messages of one class apart. Sequence numbers may wrap: calls run one after another.
constexpr std::uint64_t kGreetingClass = std::uint64_t{0} << 38;
constexpr std::uint64_t kDataClass = std::uint64_t{1} << 38;
constexpr std::uint64_t kSequenceMask = (std::uint64_t{1} << 20) - 1;

static_assert(std::is_trivially_copyable_v<Fingerprint>);

}  // namespace

SpanningOperation::SpanningOperation(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options)
    : State(print, std::move(options), owner->options().timeout), owner_(std::move(owner)) {}

std::uint64_t SpanningOperation::greeting_tag() const noexcept { return kGreetingClass | (fingerprint.sequence & kSequenceMask); }

std::uint64_t SpanningOperation::data_tag(std::uint32_t step) const noexcept {
  return kDataClass | (std::uint64_t{step} & 0x3ffff) << 20 | (fingerprint.sequence & kSequenceMask);
}

CallOptions SpanningOperation::inner_options() const {
  CallOptions options;
  options.timeout = std::chrono::hours(24 * 365);  // this operation's own deadline is looked after by its group
  options.progress = CallOptions::Progress::kOnWait;
  options.label = describe_call(fingerprint, owner_->options().name);
  return options;
}

Fingerprint SpanningOperation::inner_print(Operation operation, const Fingerprint& like) const {
  Fingerprint print = like;
  print.operation = operation;
  print.accumulate = false;
  if (like.operation == Operation::kReduce) print.out = print.in;  // of a reduce only the root knows it
  return print;
}

std::byte* SpanningOperation::scratch(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* const block = owner_->local_group()->context().arena.allocate(bytes);
  scratch_.push_back(block);
  return static_cast<std::byte*>(block);
}

void SpanningOperation::meet() {
  stage([this] {
    const auto here = static_cast<std::size_t>(local_size());
    met_.resize(here);
    const ConstBuffer own{&fingerprint, DType::kUInt8};
    local(owner_->local().Communicator::all_gather(own, Buffer{met_.data(), DType::kUInt8}, sizeof(Fingerprint), inner_options()));
  });
  stage([this] {
    for (int p = 0; p < local_size(); ++p) {
      if (!fingerprint.agrees_with(print_of_place(p))) throw owner_->mismatch(rank(), fingerprint, member(p), print_of_place(p));
    }
  });
}

void SpanningOperation::greet(const std::vector<int>& partners, Greeted whom) {
  std::set<int> peers;
  if (whom == Greeted::kRailsToo) peers.insert(owner_->rails().begin(), owner_->rails().end());
  for (const int peer : partners) {
    if (hosts().host_of(peer) != host()) peers.insert(peer);
  }
  for (const int peer : peers) {
    send_raw(peer, greeting_tag(), &fingerprint, sizeof fingerprint);
    Partner& partner = partners_[peer];
    partner.transfer = owner_->network().recv(peer, greeting_tag(), &partner.theirs, sizeof partner.theirs);
  }
}

void SpanningOperation::send(int peer, std::uint32_t step, const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  send_raw(peer, data_tag(step), data, bytes);
}

std::size_t SpanningOperation::recv(int peer, std::uint32_t step, void* data, std::size_t bytes) {
  const std::size_t number = arrived_.size();
  arrived_.push_back(bytes == 0);
  if (bytes > 0) inbound_.push_back({peer, data_tag(step), static_cast<std::byte*>(data), bytes, number, nullptr});
  return number;
}

bool SpanningOperation::is_done(Transfer& transfer, int peer) {
  try {
    return transfer.done();
  } catch (const Error& error) {
    // The peer may be about to say why: the group gives it a moment, then names it.
    if (error.kind() != ErrorKind::kPeerLost) throw;
    owner_->note_lost(peer);
    return false;
  }
}

bool SpanningOperation::advance_works() {
  const auto before = works_.size();
  std::erase_if(works_, [](Work& work) { return work.test(); });
  return works_.size() != before;
}

bool SpanningOperation::advance_greetings() {
  bool moved = false;
  for (auto& [peer, partner] : partners_) {
    if (partner.agrees || !is_done(*partner.transfer, peer)) continue;
    if (partner.transfer->bytes() != sizeof partner.theirs || !fingerprint.agrees_with(partner.theirs)) {
      throw owner_->mismatch(rank(), fingerprint, peer, partner.theirs);
    }
    partner.agrees = true;
    ++greeted_;
    moved = true;
  }
  return moved;
}

bool SpanningOperation::advance_transfers() {
  bool moved = false;
  for (auto it = inbound_.begin(); it != inbound_.end();) {
    if (!it->transfer) {
      const auto partner = partners_.find(it->peer);
      if (partner == partners_.end() || !partner->second.agrees) {
        ++it;
        continue;
      }
      it->transfer = owner_->network().recv(it->peer, it->tag, it->data, it->bytes);
    }
    if (!is_done(*it->transfer, it->peer)) {
      ++it;
      continue;
    }
    if (it->transfer->bytes() != it->bytes) {
      throw Error(ErrorKind::kMismatch,
                  "ranks disagree: in " + describe_call(fingerprint, owner_->options().name) + " " + owner_->name_of_rank(it->peer) + " sent " +
                      std::to_string(it->transfer->bytes()) + " bytes where " + owner_->name_of_rank(rank()) + " expects " +
                      std::to_string(it->bytes) + ".",
                  "Make what each rank sends equal what its peer expects.");
    }
    arrived_[it->number] = true;
    it = inbound_.erase(it);
    moved = true;
  }
  const auto before = outbound_.size();
  std::erase_if(outbound_, [this](const Outbound& outbound) { return is_done(*outbound.transfer, outbound.peer); });
  return moved || outbound_.size() != before;
}

bool SpanningOperation::advance_polls() {
  bool moved = false;
  // A poll may add polls: by index.
  for (std::size_t i = 0; i < polls_.size();) {
    if (polls_[i]()) {
      polls_.erase(polls_.begin() + static_cast<std::ptrdiff_t>(i));
      moved = true;
    } else {
      ++i;
    }
  }
  return moved;
}

bool SpanningOperation::step() {
  if (reached(Level::kComplete)) return false;
  if (!begun_) {
    begun_ = true;
    begin();
  }
  bool moved = false;
  for (;;) {
    moved = advance_works() || moved;
    moved = advance_greetings() || moved;
    moved = advance_transfers() || moved;
    moved = advance_polls() || moved;
    if (open()) return moved;
    moved = true;
    if (stages_.empty()) {
      for (void* const block : scratch_) owner_->local_group()->context().arena.free(block);
      scratch_.clear();
      reach(Level::kComplete);
      return true;
    }
    const std::function<void()> start = std::move(stages_.front());
    stages_.pop_front();
    start();
  }
}

std::vector<Missing> SpanningOperation::missing() const {
  std::set<int> absent;
  std::set<int> late;
  for (const auto& [peer, partner] : partners_) {
    if (!partner.agrees) absent.insert(peer);
  }
  for (const Inbound& inbound : inbound_) {
    if (!absent.contains(inbound.peer)) late.insert(inbound.peer);
  }
  for (const Work& work : works_) {
    if (work.state() == nullptr) continue;
    for (const Missing& missing : work.state()->missing()) {
      if (!absent.contains(member(missing.rank))) late.insert(member(missing.rank));
    }
  }
  std::vector<Missing> ranks;
  for (const int r : absent) ranks.push_back({r, false});
  for (const int r : late) ranks.push_back({r, true});
  return ranks;
}

void SpanningOperation::let_go() noexcept {
  stages_.clear();
  polls_.clear();
  inbound_.clear();
  outbound_.clear();
  for (auto& [peer, partner] : partners_) partner.transfer.reset();
  works_.clear();
  // Peers may still be at it.
  for (void* const block : scratch_) owner_->keep(block);
  scratch_.clear();
}

}  // namespace wirewise::comm
