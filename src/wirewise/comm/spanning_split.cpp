// Splitting a communicator across hosts: each part is split off on every host first, then connects with what it has on others. Whoever
// waits in a part is overseen by the whole, whose ranks know who has died.
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/comm/phase.h"
#include "wirewise/comm/spanning_communicator.h"
#include "wirewise/comm/split.h"

namespace wirewise::comm {
namespace {

/// A communicator while it is being split: it knows who holds up the parts.
class SplitOverseer final : public Overseer {
 public:
  SplitOverseer(std::shared_ptr<SpanningGroup> group, std::string doing) : group_(std::move(group)), doing_(std::move(doing)) {}
  void look_after() override { group_->look_after(doing_); }
  [[nodiscard]] std::optional<Error> verdict(const Error& found) override { return group_->blame(found, doing_); }

 private:
  std::shared_ptr<SpanningGroup> group_;
  std::string doing_;
};

}  // namespace

/// A part while it is made.
struct SpanningCommunicator::Part {
  std::vector<int> members;  // ranks of the whole
  HostMap hosts;             // of the members
  int place = 0;             // this rank's among them
  CommunicatorOptions options;
  std::string doing;  // what errors call it
  std::shared_ptr<Overseer> overseer;
};

std::unique_ptr<Communicator> SpanningCommunicator::split(int colour, int key, CommunicatorOptions options) {
  CallOptions call;
  call.label = "split into " + options.name;
  std::vector<int> members = choose_part(*this, colour, key, call);
  std::vector<std::string> ids;
  int place = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    ids.push_back(std::to_string(group_->hosts().host_of(members[i])));
    if (members[i] == rank()) place = static_cast<int>(i);
  }
  Part part{std::move(members), HostMap(ids), place, std::move(options), call.label, std::make_shared<SplitOverseer>(group_, call.label)};
  std::unique_ptr<Communicator> result;
  {
    const WhileOverseen overseen(group_->local_group()->overseen(), part.overseer);
    result = group_->local().split(colour, place, part.options);
  }
  // All ranks take part, also those whose part stays on one host.
  const std::unique_ptr<WireEnd> end = part.hosts.count() > 1 ? make_end_(static_cast<int>(part.members.size())) : nullptr;
  const std::vector<std::string> cards = gather_texts(end ? end->card() : std::string());
  if (end) {
    auto local = std::unique_ptr<LocalCommunicator>(static_cast<LocalCommunicator*>(result.release()));
    result = connect_part(std::move(part), std::move(local), *end, cards);
  }
  // Ends live until all have connected.
  barrier(call).wait();
  return colour < 0 ? nullptr : std::move(result);
}

std::unique_ptr<Communicator> SpanningCommunicator::connect_part(Part part, std::unique_ptr<LocalCommunicator> local, WireEnd& end,
                                                                 const std::vector<std::string>& cards) {
  std::vector<std::string> members_cards;
  std::vector<RankIdentity> identities;
  FlightTicket flight{group_->flight().recorder, {}};
  // Who waits for a connection waits for no operation: this communicator's other connections tell of deaths meanwhile.
  Acquaintance known;
  known.look_after = [overseer = part.overseer] { overseer->look_after(); };
  for (const int member : part.members) {
    members_cards.push_back(cards[static_cast<std::size_t>(member)]);
    identities.push_back(group_->identities()[static_cast<std::size_t>(member)]);
    identities.back().number = static_cast<int>(identities.size()) - 1;
    flight.job_ranks.push_back(group_->flight().job_rank(member));
    known.names.push_back(group_->name_of_rank(member));
  }
  std::vector<int> hosts;  // their numbers here
  for (int host = 0; host < part.hosts.count(); ++host) {
    hosts.push_back(group_->hosts().host_of(part.members[static_cast<std::size_t>(part.hosts.members(host).front())]));
  }
  ChoiceBasis basis{table_->model().of_part(hosts), table_->wishes()};
  const std::shared_ptr<Group> here = local->group();  // which outlives a part that can't be made
  here->serve(identities, part.hosts.members(part.hosts.host_of(part.place)));
  const WhileOverseen overseen(here->overseen(), part.overseer);
  try {
    phase("connecting");
    const auto timeout = group_->options().timeout;
    Wires wires = end.connect(part.place, part.hosts, members_cards, std::chrono::steady_clock::now() + timeout, known);
    return std::make_unique<SpanningCommunicator>(std::move(part.hosts), part.place, std::move(identities), std::move(local), std::move(wires),
                                                  make_end_, std::move(flight), part.options, timeout, std::move(basis), part.overseer);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kMismatch || error.kind() == ErrorKind::kBadInput) throw;  // of the part itself, and known to its ranks
    const bool says = error.sentence().find(part.doing) != std::string::npos;
    const Error cause = group_->first_cause(says ? error : Error(error.kind(), part.doing + ": " + error.sentence(), error.remedy()), part.doing);
    if (local) local->group()->record_failure(cause);
    throw cause;
  }
}

}  // namespace wirewise::comm
