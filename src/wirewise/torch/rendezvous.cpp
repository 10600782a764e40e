// Opens the store and lets all ranks meet in it: each says who it is, rank 0 waits for all of them and publishes the list. So a
// rank that doesn't come is named instead of a key, and two processes with one rank are refused instead of hanging.
#include "wirewise/torch/rendezvous.h"

#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <fstream>
#include <future>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/comm/cards.h"
#include "wirewise/comm/host_map.h"
#include "wirewise/torch/store_c10d.h"

namespace wirewise {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// First lines of rank 0's verdict when the run can't start.
constexpr std::string_view kTooLate = "too late";
constexpr std::string_view kRefused = "refused";

class Deadline {
 public:
  explicit Deadline(milliseconds timeout) : end_(Clock::now() + timeout) {}
  [[nodiscard]] milliseconds left() const {
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(end_ - Clock::now()));
  }

 private:
  Clock::time_point end_;
};

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? one_line(name) : "unknown";
}

// What a rank writes about itself: a field a line.
struct Introduction {
  int size = 0;
  long pid = 0;
  std::string host;
  std::string host_id;
};

std::string to_text(const Introduction& introduction) {
  return std::to_string(introduction.size) + "\n" + std::to_string(introduction.pid) + "\n" + introduction.host + "\n" +
         introduction.host_id + "\n";
}

// Reads one introduction, or empty when the store holds something else.
std::optional<Introduction> read_introduction(std::istream& text) {
  Introduction result;
  std::string size, pid;
  if (!std::getline(text, size) || !std::getline(text, pid) || !std::getline(text, result.host) ||
      !std::getline(text, result.host_id)) {
    return std::nullopt;
  }
  try {
    result.size = std::stoi(size);
    result.pid = std::stol(pid);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return result;
}

std::string described(const Introduction& rank) { return rank.host + ", process " + std::to_string(rank.pid); }

Introduction parse_introduction(const std::string& text, const std::string& where) {
  std::istringstream stream(text);
  auto result = read_introduction(stream);
  if (!result) throw Error(ErrorKind::kStore, "The store at " + where + " holds something that no rank of this run wrote.");
  return *std::move(result);
}

// The ranks' meeting in an open store.
class Roll {
 public:
  Roll(Store& store, const Meeting& meeting, std::string where, milliseconds timeout)
      : store_(store), meeting_(meeting), where_(std::move(where)), timeout_(timeout), deadline_(timeout) {}

  std::vector<Introduction> call(const Introduction& self) {
    prefix_ = "wirewise/meeting/" + std::to_string(meeting_.attempt) + "/";
    // A process may meet again in the same store, so each rank counts its meetings; a count above one while the meeting before
    // never came together means two processes that hold one rank.
    const auto round = store_.add(prefix_ + "round/" + std::to_string(meeting_.rank), 1);
    if (round > 1) refuse_second_claim(prefix_ + std::to_string(round - 1) + "/");
    prefix_ += std::to_string(round) + "/";
    store_.set(key_of(meeting_.rank), to_text(self));
    if (meeting_.rank == 0) publish();
    return read_list();
  }

 private:
  [[nodiscard]] std::string key_of(int rank) const { return prefix_ + "rank/" + std::to_string(rank); }

  // Empty when the key isn't there.
  [[nodiscard]] std::optional<std::string> look(const std::string& key) { return get_within(key, milliseconds(0)); }
  [[nodiscard]] std::optional<std::string> get_in_time(const std::string& key) { return get_within(key, deadline_.left()); }
  [[nodiscard]] std::optional<std::string> get_within(const std::string& key, milliseconds timeout) {
    try {
      return store_.get(key, timeout);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kTimeout) throw;
      return std::nullopt;
    }
  }

  void refuse_second_claim(const std::string& earlier) {
    if (look(earlier + "all")) return;
    const auto other = look(earlier + "rank/" + std::to_string(meeting_.rank));
    const std::string who = other ? " by " + described(parse_introduction(*other, where_)) : "";
    throw bad_input("Rank " + std::to_string(meeting_.rank) + " is already taken" + who + " in the store at " + where_ + ".",
                    meeting_.place == Meeting::Place::kTcp ? "Give each process its own RANK, and each run its own port."
                                                           : "Give each process its own RANK; if an earlier run left this " +
                                                                 std::string(file_or_folder()) + ", remove it.");
  }

  [[nodiscard]] std::string_view file_or_folder() const { return meeting_.place == Meeting::Place::kFile ? "file" : "folder"; }

  // Rank 0: waits for every rank, then publishes the verdict: "ok" and the introductions, or why the run can't start.
  void publish() {
    std::string list = "ok\n";
    for (int rank = 0; rank < meeting_.size; ++rank) {
      const auto text = get_in_time(key_of(rank));
      if (!text) return publish_failure(kTooLate, timed_out());
      const Introduction other = parse_introduction(*text, where_);
      if (other.size != meeting_.size) {
        return publish_failure(kRefused, bad_input("Ranks disagree on the world size: rank 0 was started with " +
                                                       std::to_string(meeting_.size) + ", rank " + std::to_string(rank) + " (" +
                                                       described(other) + ") with " + std::to_string(other.size) + ".",
                                                   "Start all ranks with the same WORLD_SIZE."));
      }
      list += *text;
    }
    store_.set(prefix_ + "all", list);
  }

  // The store ends with rank 0, so those that came get a moment to read why.
  void publish_failure(std::string_view verdict, const Error& error) {
    constexpr milliseconds kGrace{2000};
    store_.set(prefix_ + "all", std::string(verdict) + "\n" + error.sentence() + "\n" + error.remedy() + "\n");
    const Deadline grace(kGrace);
    for (int rank = 1; rank < meeting_.size; ++rank) {
      if (!look(key_of(rank))) continue;
      try {
        (void)store_.get(prefix_ + "read/" + std::to_string(rank), grace.left());
      } catch (const Error&) {
        // It left on its own deadline, or died: nobody to wait for.
      }
    }
  }

  std::vector<Introduction> read_list() {
    const std::string read = prefix_ + "read/" + std::to_string(meeting_.rank);
    const auto text = get_in_time(prefix_ + "all");
    if (!text) {
      const Error error = timed_out();
      store_.set(read, "");
      throw error;
    }
    std::istringstream stream(*text);
    std::string verdict;
    std::getline(stream, verdict);
    if (verdict != "ok") {
      std::string sentence, remedy;
      std::getline(stream, sentence);
      std::getline(stream, remedy);
      store_.set(read, "");
      throw Error(verdict == kTooLate ? ErrorKind::kTimeout : ErrorKind::kBadInput, sentence, remedy);
    }
    std::vector<Introduction> result;
    while (auto introduction = read_introduction(stream)) result.push_back(*std::move(introduction));
    if (result.size() != static_cast<std::size_t>(meeting_.size)) {
      throw Error(ErrorKind::kStore, "The store at " + where_ + " lists " + std::to_string(result.size()) + " of " +
                                         std::to_string(meeting_.size) + " ranks.");
    }
    return result;
  }

  [[nodiscard]] Error timed_out() {
    constexpr int kMostNamed = 16;
    std::vector<std::string> named;
    int missing = 0;
    for (int rank = 0; rank < meeting_.size; ++rank) {
      if (look(key_of(rank))) continue;
      if (++missing <= kMostNamed) named.push_back(std::to_string(rank));
    }
    const std::string met = std::to_string(meeting_.size - missing) + " of " + std::to_string(meeting_.size) + " ranks met at " +
                            where_ + " within " + std::to_string(timeout_.count()) + " ms";
    if (missing == 0) return Error(ErrorKind::kTimeout, met + ", but rank 0 didn't say so: it is slow or gone.");
    return Error(
        ErrorKind::kTimeout,
        met + "; missing: " + (missing == 1 ? "rank " : "ranks ") + join(named, ", ") + (missing > kMostNamed ? ", …" : "") + ".",
        "See whether they started and what they said; ranks that start late need a longer timeout.");
  }

  Store& store_;
  const Meeting& meeting_;
  std::string where_;
  milliseconds timeout_;
  Deadline deadline_;
  std::string prefix_;
};

// A host name that means loopback here (as a distribution's /etc/hosts often says) can't be reached from other hosts.
void refuse_unreachable(const Meeting& meeting, const std::string& address) {
  if (!is_loopback(address) || !meeting.local_size || *meeting.local_size == meeting.size) return;
  const std::string own = join(reachable_addresses(), ", ");
  throw bad_input(
      meeting.address_setting + " is '" + meeting.endpoint.host + "', which is the loopback address " + address +
          " on rank 0's host, but " + std::to_string(meeting.size - *meeting.local_size) + " of " + std::to_string(meeting.size) +
          " ranks are on other hosts.",
      own.empty() ? "Give an address of rank 0's host that they can reach." : "Give one that they can reach: " + own + ".");
}

// TCPStore's constructor waits for an answer without a deadline, for ever if some other program holds the port. So it runs on a
// thread that is left behind when the deadline passes.
c10::intrusive_ptr<c10d::Store> connect_store(const std::string& address, const c10d::TCPStoreOptions& options,
                                              const std::string& where, const Deadline& deadline) {
  const std::string sentence = "What listens at " + where + " is no store of this kind: ";
  const std::string remedy = "Another program may hold the port: choose another.";
  std::packaged_task<c10::intrusive_ptr<c10d::Store>()> construct(
      [address, options]() -> c10::intrusive_ptr<c10d::Store> { return c10::make_intrusive<c10d::TCPStore>(address, options); });
  auto store = construct.get_future();
  std::thread(std::move(construct)).detach();
  if (store.wait_for(deadline.left()) != std::future_status::ready) {
    throw Error(ErrorKind::kStore, sentence + "it does not answer.", remedy);
  }
  try {
    return store.get();
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kStore, sentence + first_line(error) + ".", remedy);
  }
}

c10::intrusive_ptr<c10d::Store> open_tcp(const Meeting& meeting, const Deadline& deadline, std::string& where) {
  const std::vector<std::string> addresses = resolve(meeting.endpoint.host, meeting.address_setting);
  c10d::TCPStoreOptions options;
  options.waitWorkers = false;
  options.isServer = meeting.rank == 0 && !meeting.agent_store;
  std::string address = addresses.front();
  options.port = meeting.endpoint.port;
  if (options.isServer) {
    refuse_unreachable(meeting, address);
    Listener listener(address, options.port, meeting.port_setting);
    options.port = listener.port();
    options.masterListenFd = listener.release();
  } else {
    address = wait_for_listener(addresses, options.port, deadline.left());
  }
  where = to_string(Endpoint{address, options.port});
  options.timeout = std::max(deadline.left(), milliseconds(1000));
  return connect_store(address, options, where, deadline);
}

c10::intrusive_ptr<c10d::Store> open_file(const Meeting& meeting, std::string& where) {
  where = meeting.path.string();
  const auto folder = meeting.path.parent_path();
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    throw bad_input("The rendezvous file " + where + " is in no folder: " + folder.string() + " does not exist.");
  }
  if (std::filesystem::is_directory(meeting.path, error)) throw bad_input("The rendezvous file " + where + " is a folder.");
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    throw bad_input("The folder of the rendezvous file " + where + " can't be written.");
  return c10::make_intrusive<c10d::FileStore>(where, meeting.size);
}

}  // namespace

World meet(const Meeting& meeting, milliseconds timeout) {
  const Deadline deadline(timeout);
  World world;
  world.rank = meeting.rank;
  world.size = meeting.size;
  if (meeting.place == Meeting::Place::kFolder) {
    world.where = meeting.path.string();
    world.store = std::make_shared<FileStore>(meeting.path);
  } else {
    world.c10d_store =
        meeting.place == Meeting::Place::kTcp ? open_tcp(meeting, deadline, world.where) : open_file(meeting, world.where);
    world.store = std::make_shared<C10dStore>(world.c10d_store);
  }
  const Introduction self{meeting.size, static_cast<long>(getpid()), host_name(), comm::host_id()};
  const std::vector<Introduction> all = Roll(*world.store, meeting, world.where, deadline.left()).call(self);
  const auto on_this_host = [&](const Introduction& other) { return other.host_id == self.host_id; };
  world.local_size = meeting.local_size.value_or(static_cast<int>(std::count_if(all.begin(), all.end(), on_this_host)));
  world.local_rank =
      meeting.local_rank.value_or(static_cast<int>(std::count_if(all.begin(), all.begin() + meeting.rank, on_this_host)));
  std::vector<std::string> ids;
  for (const Introduction& rank : all) {
    world.members.push_back({rank.host, rank.pid});
    ids.push_back(rank.host_id);
  }
  const comm::HostMap hosts(ids);
  for (int rank = 0; rank < world.size; ++rank) world.host_of.push_back(hosts.host_of(rank));
  return world;
}

World rendezvous(std::string_view url, milliseconds timeout) { return meet(parse_meeting(url), timeout); }

}  // namespace wirewise
