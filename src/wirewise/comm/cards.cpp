#include "wirewise/comm/cards.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "wirewise/base/cgroup.h"
#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// Start time of a process of this host, which tells it from another with its number; empty when there is none.
std::string start_time(const std::string& process = "self") {
  std::ifstream file("/proc/" + process + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 2)));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  return field;
}

std::string written(const std::vector<int>& cpus) {
  std::string text = "cpus";
  for (const int cpu : cpus) text += ',' + std::to_string(cpu);
  return text;
}

std::vector<int> read_cpus(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream in(text.substr(std::min(text.find(','), text.size())));
  for (int cpu = 0; in.get() == ',' && in >> cpu;) cpus.push_back(cpu);
  return cpus;
}

std::string written(const Card& card) {
  std::ostringstream text;
  text << card.size << ' ' << card.pid << ' ' << card.user << ' ' << card.host_id << ' ' << card.machine << ' ' << card.socket << ' ' << card.cookie << ' ' << card.host << ' '
       << written(card.cpus) << ' ' << card.device;
  return text.str();
}

Card read_card(const std::string& text, int rank) {
  Card card;
  std::istringstream in(text);
  std::string cpus;
  if (!(in >> card.size >> card.pid >> card.user >> card.host_id >> card.machine >> card.socket >> card.cookie >> card.host >> cpus)) {
    throw Error(ErrorKind::kStore, "rendezvous: what rank " + std::to_string(rank) + " left in the store can't be read.",
                "Start all ranks from one build of wirewise, on a store of their own.");
  }
  card.cpus = read_cpus(cpus);
  if (in.get() == ' ') std::getline(in, card.device);
  return card;
}

/// Two ranks with one device would wait for each other on it, or share its memory without knowing.
void refuse_shared_devices(const Cards& cards) {
  constexpr std::size_t kMostNamed = 8;
  std::map<std::pair<std::string, std::string>, std::vector<int>> holders;
  for (int r = 0; r < cards.size(); ++r) {
    const Card& card = cards.of(r);
    if (!card.device.empty()) holders[{card.host_id, card.device}].push_back(r);
  }
  std::vector<std::string> shared;
  bool given = false;
  for (const auto& [device, ranks] : holders) {
    if (ranks.size() < 2) continue;
    std::vector<std::string> names;
    for (const int r : ranks) names.push_back(cards.who(r));
    const std::string last = names.back();
    names.pop_back();
    shared.push_back(join(names, ", ") + " and " + last + " have one device, " + printable(device.second));
    given = given || device.first.starts_with("given:");
  }
  if (shared.empty()) return;
  const std::size_t more = shared.size() - std::min(shared.size(), kMostNamed);
  shared.resize(shared.size() - more);
  throw bad_input("rendezvous: " + join(shared, "; ") + (more > 0 ? "; and so on, " + std::to_string(more) + " more" : "") + ".",
                  std::string("Give each rank a device of its own, by its local rank (LOCAL_RANK).") +
                      (given ? " If they are on different hosts, WIREWISE_HOST_ID says wrongly that they are on one." : ""));
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

/// One process a rank. A process may make several communicators of one name in turn: each is a generation of its own.
std::int64_t claim_rank(Store& store, int rank, std::chrono::milliseconds timeout, const std::string& name) {
  const std::string key = "claim/" + std::to_string(rank);
  const std::int64_t generation = store.add(key, 1);
  const std::string me = host_name() + " " + std::to_string(::getpid()) + " " + start_time();
  store.set(key + "/" + std::to_string(generation), me);
  if (generation == 1) return generation;
  const std::string before = store.get(key + "/" + std::to_string(generation - 1), timeout);
  if (before == me) return generation;
  std::istringstream words(before);
  std::string host;
  std::string pid;
  std::string started;
  words >> host >> pid >> started;
  const std::string where = store.where().empty() ? "the store" : store.where();
  if (host == host_name() && !started.empty() && parse_integer(pid) && start_time(pid) != started) {
    throw bad_input("rendezvous: " + where + " was left by an earlier run: it holds rank " + std::to_string(rank) + " of " + name + ", pid " + pid +
                        ", which has ended.",
                    "Remove it, and give each run a store of its own.");
  }
  throw bad_input("rendezvous: rank " + std::to_string(rank) + " of " + name + " is taken by " + host + ", pid " + pid + "; this is pid " +
                      std::to_string(::getpid()) + ".",
                  "Give each process a rank of its own, and each run a store of its own.");
}

/// Hands over what each rank has set under `key`; Timeout naming those that have not by the deadline.
void read_all(Store& store, const Cards& cards, int size, const std::string& key, const std::function<void(int, std::string)>& take,
              const std::function<void()>& look_after = {}) {
  using std::chrono::milliseconds;
  constexpr milliseconds kBetweenLooks{100};
  std::vector<int> absent;
  for (int r = 0; r < size;) {
    const auto left = std::max(std::chrono::duration_cast<milliseconds>(cards.deadline - Clock::now()), milliseconds(1));
    std::string text;
    try {
      text = store.get(key + std::to_string(r), look_after ? std::min(left, kBetweenLooks) : left);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kTimeout) throw;
      if (look_after) look_after();
      if (Clock::now() < cards.deadline) continue;
      absent.push_back(r++);
      continue;
    }
    take(r++, std::move(text));
  }
  if (absent.empty()) return;
  throw Error(ErrorKind::kTimeout,
              "rendezvous: " + list_of(absent) + " of " + std::to_string(size) + " did not come to " + cards.name + " within " +
                  std::to_string(cards.timeout.count()) + " ms.",
              "See whether those ranks were started, with the same store, and what they say.");
}

}  // namespace

std::string hex(ArenaId id) {
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(id.high), static_cast<unsigned long long>(id.low));
  return text.data();
}

std::string host_name() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string machine_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return file >> id ? id : host_name();
}

// The network namespace counts, since ranks meet on abstract sockets, which end with it.
std::string host_id() {
  if (const char* const given = std::getenv("WIREWISE_HOST_ID"); given != nullptr && *given != 0) {
    std::string id = std::string("given:") + given;
    std::replace_if(id.begin(), id.end(), [](unsigned char c) { return c <= ' '; }, '_');  // cards are words
    return id;
  }
  const std::string id = machine_id();
  std::array<char, 64> space{};
  const ssize_t length = ::readlink("/proc/self/ns/net", space.data(), space.size() - 1);
  return length > 0 ? id + "/" + std::string(space.data(), static_cast<std::size_t>(length)) : id;
}

std::string Cards::who(int r) const {
  return "rank " + std::to_string(r) + " (" + of(r).host + ", pid " + std::to_string(of(r).pid) + ")";
}

Card make_card(int size) {
  Card card;
  card.size = size;
  card.pid = ::getpid();
  card.user = static_cast<long>(::geteuid());
  card.host_id = host_id();
  card.machine = machine_id();
  card.socket = "wirewise-" + hex(random_id());
  card.cookie = hex(random_id());
  card.host = host_name();
  card.cpus = allowed_cpus();
  return card;
}

Cards exchange_cards(Store& store, int rank, Card own, std::chrono::milliseconds timeout, const std::string& name) {
  Cards cards;
  cards.rank = rank;
  cards.name = name;
  cards.timeout = timeout;
  cards.deadline = Clock::now() + timeout;
  cards.generation = claim_rank(store, rank, timeout, name);
  const std::string key = "card/" + std::to_string(cards.generation) + "/";
  store.set(key + std::to_string(rank), written(own));
  cards.all.resize(static_cast<std::size_t>(own.size));
  read_all(store, cards, own.size, key, [&](int r, const std::string& text) {
    cards.all[static_cast<std::size_t>(r)] = read_card(text, r);
    const int theirs = cards.of(r).size;
    if (theirs == own.size) return;
    throw Error(ErrorKind::kMismatch,
                "rendezvous: " + cards.who(r) + " counts " + std::to_string(theirs) + " ranks, rank " + std::to_string(rank) + " (" + own.host +
                    ", pid " + std::to_string(own.pid) + ") counts " + std::to_string(own.size) + ".",
                "Start all ranks with one size.");
  });
  refuse_shared_devices(cards);
  return cards;
}

std::vector<std::string> exchange_texts(Store& store, const Cards& cards, const std::string& what, const std::string& text,
                                        const std::function<void()>& look_after) {
  const std::string key = what + "/" + std::to_string(cards.generation) + "/";
  store.set(key + std::to_string(cards.rank), text);
  std::vector<std::string> texts;
  read_all(store, cards, cards.size(), key, [&](int, std::string theirs) { texts.push_back(std::move(theirs)); }, look_after);
  return texts;
}

}  // namespace wirewise::comm
