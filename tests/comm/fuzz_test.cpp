// Random programs of calls in which one rank differs: every rank that is in the call gets an error of that call, which names both sides, and
// nobody hangs. The short form takes seconds; WIREWISE_FULL=1 goes on for an hour. WIREWISE_SEED repeats one.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "wirewise/base/error.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;

struct Call {
  int operation = 0;  // 0 all_reduce, 1 all_gather, 2 reduce_scatter, 3 broadcast, 4 reduce, 5 gather, 6 scatter, 7 all_to_all, 8 barrier
  DType dtype = DType::kFloat32;
  std::size_t count = 1;
  int root = 0;
  Reduction reduction = Reduction::kSum;
  int parts = 1;
  /// Whether ranks that call these must be told apart: what an operation does not have does not count.
  [[nodiscard]] bool differs_from(const Call& other) const {
    if (operation != other.operation) return true;
    if (operation == 8) return false;
    const bool reduces = operation == 0 || operation == 2 || operation == 4;
    const bool rooted = operation >= 3 && operation <= 6;
    const bool coalesced = operation <= 2;
    return dtype != other.dtype || (operation != 7 && count != other.count) || (rooted && root != other.root) || (reduces && reduction != other.reduction) ||
           (coalesced && parts != other.parts);
  }
  [[nodiscard]] std::string text() const {
    return std::to_string(operation) + ":" + std::string(name_of(dtype)) + "x" + std::to_string(count) + " root " + std::to_string(root) + " red " +
           std::to_string(static_cast<int>(reduction)) + " parts " + std::to_string(parts);
  }
};

using Random = std::mt19937_64;

std::size_t random_count(Random& random) {
  constexpr std::size_t kCounts[] = {1, 2, 7, 63, 64, 65, 511, 1024, 4096, 4097, 20'000, 300'000};
  return kCounts[random() % std::size(kCounts)];
}

Call random_call(Random& random, int ranks) {
  constexpr DType kTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kUInt8, DType::kFloat64};
  constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kMin, Reduction::kMax, Reduction::kProduct};
  Call call;
  call.operation = static_cast<int>(random() % 9);
  call.dtype = kTypes[random() % std::size(kTypes)];
  call.count = random_count(random);
  call.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  call.reduction = kReductions[random() % std::size(kReductions)];
  call.parts = 1 + static_cast<int>(random() % 3);
  return call;
}

/// The same program as one rank mistakes it.
std::vector<Call> mistaken(std::vector<Call> program, Random& random, int ranks) {
  const std::size_t at = random() % program.size();
  Call& call = program[at];
  const Call other = random_call(random, ranks);
  switch (random() % 9) {
    case 0: call.operation = other.operation; break;
    case 1: call.dtype = other.dtype; break;
    case 2: call.count = other.count; break;
    case 3: call.root = other.root; break;
    case 4: call.reduction = other.reduction; break;
    case 5: call.parts = other.parts; break;
    case 6: program.erase(program.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 7: program.insert(program.begin() + static_cast<std::ptrdiff_t>(at), other); break;
    default: std::swap(call, program[(at + 1) % program.size()]); break;
  }
  return program;
}

class Buffers {
 public:
  Buffers(Communicator& comm, bool shared) : comm_(comm), shared_(shared) {}
  ~Buffers() {
    for (void* const block : blocks_) comm_.free_shared(block);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  std::byte* get(std::size_t bytes) {
    if (shared_) {
      blocks_.push_back(comm_.allocate_shared(bytes + 64));
      return static_cast<std::byte*>(blocks_.back());
    }
    own_.emplace_back(bytes + 64);
    return own_.back().data();
  }

 private:
  Communicator& comm_;
  bool shared_;
  std::vector<void*> blocks_;
  std::vector<std::vector<std::byte>> own_;
};

Work issue(Communicator& comm, const Call& call, Buffers& buffers) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::size_t bytes = call.count * size_of(call.dtype);
  const Buffer in{buffers.get(ranks * bytes), call.dtype};
  const Buffer out{buffers.get(ranks * bytes), call.dtype};
  std::vector<ReducePart> reductions;
  std::vector<AllGatherPart> gathers;
  // Parts take turns in the buffers: what they hold does not matter here.
  const auto parts = static_cast<std::size_t>(call.parts);
  const std::size_t each = call.count / parts;
  const std::size_t element = size_of(call.dtype);
  for (std::size_t p = 0; p < parts; ++p) {
    const std::size_t count = p + 1 == parts ? call.count - p * each : each;
    const std::size_t at = p * each * element;
    auto* const source = static_cast<std::byte*>(in.data);
    auto* const target = static_cast<std::byte*>(out.data);
    const std::size_t wide = ranks * at;
    if (call.operation == 0) reductions.push_back({{source + at, call.dtype}, {target + at, call.dtype}, count});
    if (call.operation == 2) reductions.push_back({{source + wide, call.dtype}, {target + at, call.dtype}, count});
    if (call.operation == 1) gathers.push_back({{source + at, call.dtype}, {target + wide, call.dtype}, count});
  }
  switch (call.operation) {
    case 0: return comm.all_reduce(reductions, call.reduction);
    case 1: return comm.all_gather(gathers);
    case 2: return comm.reduce_scatter(reductions, call.reduction);
    case 3: return comm.broadcast(in, call.count, call.root);
    case 4: return comm.reduce(in, out, call.count, call.root, call.reduction);
    case 5: return comm.gather(in, out, call.count, call.root);
    case 6: return comm.scatter(in, out, call.count, call.root);
    case 7: {
      // Counts of pairs agree whatever each rank's program says: only the type is mistaken.
      const std::vector<std::size_t> counts(ranks, 1);
      return comm.all_to_all(in, counts, out, counts);
    }
    default: return comm.barrier();
  }
}

struct Outcome {
  std::optional<std::size_t> failed;  // the call whose wait() threw
  std::string text;
  ErrorKind kind{};
  bool left = false;
};

void one_round(std::uint64_t seed) {
  Random random(seed);
  const int ranks = 2 + static_cast<int>(random() % 4);
  std::vector<Call> program(1 + random() % 8);
  for (Call& call : program) call = random_call(random, ranks);
  const int odd = static_cast<int>(random() % static_cast<unsigned>(ranks));
  const std::vector<Call> mistake = mistaken(program, random, ranks);
  const bool shared = random() % 2 == 0;
  const bool at_once = random() % 3 == 0;  // all calls are issued, then waited for

  std::size_t parting = 0;
  while (parting < program.size() && parting < mistake.size() && !program[parting].differs_from(mistake[parting])) ++parting;
  const bool differs = parting < program.size() || parting < mistake.size();

  std::string story = "WIREWISE_SEED=" + std::to_string(seed) + ": " + std::to_string(ranks) + " ranks, rank " + std::to_string(odd) + " mistakes";
  for (const Call& call : program) story += " [" + call.text() + "]";
  story += " for";
  for (const Call& call : mistake) story += " [" + call.text() + "]";
  SCOPED_TRACE(story);

  CommunicatorOptions options;
  options.timeout = 60s;  // nobody is to need it
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  expect_no_errors(run_threads(ranks, [&](Communicator& comm) {
    const std::vector<Call>& calls = comm.rank() == odd ? mistake : program;
    Outcome& outcome = outcomes[static_cast<std::size_t>(comm.rank())];
    Buffers buffers(comm, shared);
    std::size_t at = 0;
    try {
      std::vector<Work> works;
      for (at = 0; at < calls.size(); ++at) {
        works.push_back(issue(comm, calls[at], buffers));
        if (!at_once) works.back().wait();
      }
      for (at = 0; at < works.size(); ++at) works[at].wait();
    } catch (const Error& error) {
      outcome.failed = at;
      outcome.text = error.what();
      outcome.kind = error.kind();
    }
  }, options));

  const std::string name = "rank " + std::to_string(odd) + " (";
  for (int r = 0; r < ranks; ++r) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(r)];
    const std::size_t own = r == odd ? mistake.size() : program.size();
    if (!differs || parting >= own) {
      // Its program is over before they part.
      EXPECT_TRUE(!outcome.failed) << "rank " << r << ": " << outcome.text;
      continue;
    }
    ASSERT_TRUE(outcome.failed.has_value()) << "rank " << r << " heard nothing; they part in call " << parting;
    // Never later: a rank may still be in an earlier call when the others part, and hears of it there.
    if (!at_once) {
      EXPECT_LE(*outcome.failed, parting) << "rank " << r << ": " << outcome.text;
    }
    const bool one_is_over = parting >= program.size() || parting >= mistake.size();
    EXPECT_TRUE(outcome.kind == ErrorKind::kMismatch || (one_is_over && (outcome.kind == ErrorKind::kPeerLost || outcome.kind == ErrorKind::kAborted)))
        << "rank " << r << ": " << outcome.text;
    if (outcome.kind == ErrorKind::kMismatch) {
      EXPECT_NE(outcome.text.find(name), std::string::npos) << outcome.text;
      EXPECT_NE(outcome.text.find(" called "), outcome.text.rfind(" called ")) << outcome.text;
    } else {
      EXPECT_NE(outcome.text.find("rank "), std::string::npos) << outcome.text;
    }
  }
}

TEST(Fuzz, AProgramThatOneRankMistakesIsAnErrorOfTheCallWhereTheyPart) {
  if (const char* const given = std::getenv("WIREWISE_SEED")) return one_round(std::strtoull(given, nullptr, 10));
  const char* const wanted = std::getenv("WIREWISE_FUZZ_SECONDS");
  const auto length = wanted != nullptr ? std::chrono::seconds(std::atol(wanted)) : std::getenv("WIREWISE_FULL") != nullptr ? 240s : 6s;
  const auto end = std::chrono::steady_clock::now() + length;
  std::random_device device;
  std::uint64_t rounds = 0;
  while (std::chrono::steady_clock::now() < end) {
    one_round(static_cast<std::uint64_t>(device()) << 20 | rounds++);
    if (HasFailure()) return;
  }
  RecordProperty("rounds", std::to_string(rounds));
  std::printf("%llu rounds\n", static_cast<unsigned long long>(rounds));
}

}  // namespace
}  // namespace wirewise
