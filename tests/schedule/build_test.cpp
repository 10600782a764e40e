// The plain program and what every program of the builders must do, whatever its passes.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "schedule/fixtures.h"
#include "wirewise/base/error.h"

namespace wirewise::test {
namespace {

TEST(BuildTrainSchedule, EveryCombinationOfOptionsIsSound) {
  // build_train_schedule ends in check(), which throws.
  Random random(20240611);
  int built = 0;
  for (int ranks : {1, 2, 4}) {
    for (bool tied : {false, true}) {
      for (int zero : {0, 1, 2, 3}) {
        for (int prefetch : {0, 1, 2, 5}) {
          for (Bytes bucket : {Bytes{0}, Bytes{1} << 20, Bytes{1} << 50}) {
            for (Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
              for (auto policy : {AccumulationPolicy::kLocalSum, AccumulationPolicy::kReduceEach}) {
                for (int accumulation : {1, 2, 3}) {
                  Strategy strategy = strategy_of(zero, ranks);
                  strategy.prefetch = prefetch;
                  strategy.bucket = bucket;
                  strategy.recompute = recompute;
                  strategy.accumulation_policy = policy;
                  strategy.accumulation = accumulation;
                  strategy.keep_after_forward = built % 3 == 0;
                  const Model model = random_model(random, pick(random, 1, 5), ranks, tied);
                  ASSERT_NO_THROW((void)build_train_schedule(model, strategy, ranks, {built % 2 == 0, built % 5 != 0}))
                      << text_of(strategy);
                  ASSERT_NO_THROW((void)build_forward_schedule(model, strategy, ranks)) << text_of(strategy);
                  ++built;
                }
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(built, 3 * 2 * 4 * 4 * 3 * 2 * 2 * 3);
}

/// Which (unit, segment, micro-batch) a gradient buffer holds the contributions of.
using Contributions = std::set<std::tuple<int, int, int>>;

/// Runs a program on contributions instead of numbers, and compares what each group steps with what it must.
class GradientFlow {
 public:
  GradientFlow(const Program& program, const Model& model) : program_(program), model_(model) {}

  void run() {
    for (const auto& op : program_.ops) {
      if (op.kind == OpKind::kBackward) backward(op);
      if (op.kind == OpKind::kReduceScatter || op.kind == OpKind::kAllReduce) reduce(op);
      if (op.kind == OpKind::kStep) step(op);
      for (BufferId id : op.frees) content_.erase(id);
    }
    EXPECT_EQ(stepped_, static_cast<int>(model_.groups.size()));
  }

 private:
  void backward(const Op& op) {
    for (BufferId id : op.writes) {
      if (buffer(program_, id).role != BufferRole::kGrad) continue;
      // It overwrites its own tensors; whatever another unit or micro-batch left in them is lost.
      auto& held = content_[id];
      for (auto it = held.begin(); it != held.end();) {
        const bool own = std::get<0>(*it) == op.unit && std::get<2>(*it) == op.micro_batch;
        it = own ? std::next(it) : held.erase(it);
      }
      EXPECT_TRUE(held.emplace(op.unit, op.segment, op.micro_batch).second);
    }
    for (BufferId id : op.adds) {
      ASSERT_TRUE(content_.contains(id)) << "adds to what was never written";
      EXPECT_TRUE(content_[id].emplace(op.unit, op.segment, op.micro_batch).second);
    }
  }

  void reduce(const Op& op) {
    const auto& targets = op.writes.empty() ? op.adds : op.writes;
    ASSERT_EQ(op.reads.size(), targets.size());
    for (std::size_t i = 0; i < op.reads.size(); ++i) {
      EXPECT_EQ(buffer(program_, op.reads[i]).param_group, buffer(program_, targets[i]).param_group);
      auto& into = content_[targets[i]];
      if (!op.writes.empty()) into.clear();
      for (const auto& one : content_[op.reads[i]]) EXPECT_TRUE(into.insert(one).second) << "reduced twice";
    }
  }

  void step(const Op& op) {
    ++stepped_;
    ASSERT_EQ(op.param_groups.size(), 1U);
    Contributions expected;
    for (const auto& seen : program_.ops) {
      if (seen.kind != OpKind::kForward) continue;
      const auto& groups =
          model_.units[static_cast<std::size_t>(seen.unit)].segments[static_cast<std::size_t>(seen.segment)].groups;
      if (std::find(groups.begin(), groups.end(), op.param_groups[0]) != groups.end()) {
        expected.emplace(seen.unit, seen.segment, seen.micro_batch);
      }
    }
    EXPECT_EQ(content_[op.reads[0]], expected) << "group " << op.param_groups[0];
  }

  const Program& program_;
  const Model& model_;
  std::map<BufferId, Contributions> content_;
  int stepped_ = 0;
};

TEST(BuildTrainSchedule, EachGroupStepsOnEveryGradientOnce) {
  std::string what;
  for_random_schedules(
      400, 1000,
      [&](const Schedule& schedule, const Model& model, Random&) {
        SCOPED_TRACE(what);
        GradientFlow(schedule.programs[0], model).run();
      },
      [&](const std::string& text) { what = text; });
}

Program built(const Model& model, const Strategy& strategy) {
  return build_train_schedule(model, strategy, strategy.dp_shard, {}).programs.at(0);
}

Bytes gathered_bytes(const Program& program, int group) {
  for (const auto& info : program.buffers) {
    if (info.param_group == group && info.role == BufferRole::kFullParam) return info.bytes;
  }
  return 0;
}

int gathers_of(const Program& program, int group) {
  int count = 0;
  for (const auto& op : program.ops) {
    if (op.kind == OpKind::kGather) count += static_cast<int>(std::count(op.param_groups.begin(), op.param_groups.end(), group));
  }
  return count;
}

TEST(CommunicationVolume, Zero3GathersBlocksTwiceAndReducesOnceAMicroBatch) {
  for (int accumulation : {1, 3}) {
    Strategy strategy = strategy_of(3, 4);
    strategy.accumulation = accumulation;
    strategy.accumulation_policy = AccumulationPolicy::kReduceEach;
    const Model model = small_gpt(3, 4, false, strategy);
    const Program program = built(model, strategy);
    const int groups = static_cast<int>(model.groups.size());
    Bytes gathered = 0, whole = 0;
    for (int group = 0; group < groups; ++group) {
      const auto& users = model.groups[static_cast<std::size_t>(group)].users;
      const auto kind = model.units[static_cast<std::size_t>(users.front())].kind;
      // An embedding's backward needs no weights, and the head's backward follows its forward at once.
      const int expected = kind == UnitKind::kBlock ? 2 * accumulation : accumulation;
      EXPECT_EQ(gathers_of(program, group), expected) << model.groups[static_cast<std::size_t>(group)].name;
      gathered += static_cast<Bytes>(expected) * gathered_bytes(program, group);
      whole += model.groups[static_cast<std::size_t>(group)].padded * 2;
    }
    EXPECT_EQ(moved(program, OpKind::kGather), gathered);
    EXPECT_EQ(moved(program, OpKind::kReduceScatter), whole * static_cast<Bytes>(accumulation));
    EXPECT_EQ(moved(program, OpKind::kAllReduce), 0U);
  }
}

TEST(CommunicationVolume, LocalSumReducesOnceAStepInFloat32) {
  Strategy strategy = strategy_of(3, 2);
  strategy.accumulation = 4;
  const Model model = small_gpt(2, 2, true, strategy);
  Bytes whole = 0;
  for (const auto& group : model.groups) whole += group.padded * 4;
  EXPECT_EQ(moved(built(model, strategy), OpKind::kReduceScatter), whole);
}

TEST(CommunicationVolume, DataParallelReducesOnceAndGathersNothing) {
  const Strategy strategy = strategy_of(0, 4);
  const Model model = small_gpt(3, 4, true, strategy);
  const Program program = built(model, strategy);
  Bytes whole = 0;
  for (const auto& group : model.groups) whole += group.padded * 2;
  EXPECT_EQ(moved(program, OpKind::kAllReduce), whole);
  EXPECT_EQ(count_ops(program, OpKind::kGather), 0);
  EXPECT_EQ(count_ops(program, OpKind::kReduceScatter), 0);
}

TEST(CommunicationVolume, Zero1And2ReduceScatterAndGatherOnce) {
  for (int zero : {1, 2}) {
    const Strategy strategy = strategy_of(zero, 4);
    const Model model = small_gpt(3, 4, false, strategy);
    const Program program = built(model, strategy);
    Bytes whole = 0;
    for (const auto& group : model.groups) whole += group.padded * 2;
    EXPECT_EQ(moved(program, OpKind::kReduceScatter), whole);
    EXPECT_EQ(moved(program, OpKind::kGather), whole);
  }
}

TEST(CommunicationVolume, KeptParametersAreGatheredOnce) {
  Strategy strategy = strategy_of(3, 4);
  strategy.keep_after_forward = true;
  const Model model = small_gpt(3, 4, true, strategy);
  const Program program = built(model, strategy);
  for (int group = 0; group < static_cast<int>(model.groups.size()); ++group) EXPECT_EQ(gathers_of(program, group), 1) << group;
}

TEST(BuildTrainSchedule, TiedGroupIsReducedAfterItsLastUserAndAddsForTheSecond) {
  const Strategy strategy = strategy_of(0, 2);
  const Model model = small_gpt(2, 2, true, strategy);
  const Program program = built(model, strategy);
  std::vector<const Op*> users;
  const Op* reduction = nullptr;
  for (const auto& op : program.ops) {
    const auto touches = [&](const std::vector<BufferId>& ids) {
      return std::any_of(ids.begin(), ids.end(), [&](BufferId id) {
        return buffer(program, id).role == BufferRole::kGrad && buffer(program, id).param_group == 0;
      });
    };
    if (op.kind == OpKind::kBackward && (touches(op.writes) || touches(op.adds))) users.push_back(&op);
    if (op.kind == OpKind::kAllReduce && touches(op.reads)) reduction = &op;
  }
  ASSERT_EQ(users.size(), 2U);
  EXPECT_EQ(users[0]->unit, 3);
  EXPECT_TRUE(has_role(program, users[0]->writes, BufferRole::kGrad));
  EXPECT_EQ(users[1]->unit, 0);
  EXPECT_TRUE(has_role(program, users[1]->adds, BufferRole::kGrad));
  ASSERT_NE(reduction, nullptr);
  EXPECT_GT(reduction, users[1]);
}

TEST(BuildTrainSchedule, RecomputeSavesOnlyUnitInputsAndRunsOnceAUnit) {
  Strategy strategy = strategy_of(3, 2);
  strategy.recompute = Recompute::kFull;
  Model model = small_gpt(3, 2, false, strategy);
  for (auto& unit : model.units) {
    for (std::size_t s = 0; s < unit.segments.size(); ++s) unit.segments[s].cost.temporary_forward = 100 + 10 * s;
  }
  const Program program = built(model, strategy);
  // The embedding saves nothing and the head's backward follows at once: neither is recomputed.
  EXPECT_EQ(count_ops(program, OpKind::kRecompute), 3);
  for (const auto& op : program.ops) {
    const bool block = op.unit >= 1 && op.unit <= 3;
    if (op.kind == OpKind::kForward) {
      EXPECT_EQ(op.save, !block);
      EXPECT_FALSE(block && has_role(program, op.allocates, BufferRole::kSaved));
    }
    if (op.kind == OpKind::kRecompute) {
      EXPECT_TRUE(has_role(program, op.reads, BufferRole::kFullParam));
      const auto& segments = model.units[static_cast<std::size_t>(op.unit)].segments;
      EXPECT_EQ(op.flops, segments[0].cost.forward + segments[1].cost.forward);
      EXPECT_EQ(op.temporary, 110U);  // segments run one after the other
    }
  }
}

TEST(BuildTrainSchedule, OneRankHasNothingToShard) {
  std::vector<std::string> stages;
  for (int zero : {0, 1, 2, 3}) {
    Strategy strategy = strategy_of(zero, 1);
    const Model model = small_gpt(2, 1, true, strategy);
    const Program program = built(model, strategy);
    EXPECT_EQ(count_ops(program, OpKind::kGather), 0);
    EXPECT_EQ(count_ops(program, OpKind::kReduceScatter), 0);
    EXPECT_GT(count_ops(program, OpKind::kAllReduce), 0);
    for (const auto& info : program.buffers) EXPECT_FALSE(info.shared) << info.name;
  }
}

TEST(BuildTrainSchedule, SharesExactlyWhatPeersRead) {
  for (int zero : {0, 1, 2, 3}) {
    const Strategy strategy = strategy_of(zero, 2);
    const Program program = built(small_gpt(1, 2, true, strategy), strategy);
    for (const auto& info : program.buffers) {
      const bool read_by_peers = info.role == BufferRole::kGrad || (info.role == BufferRole::kParam && zero >= 1);
      EXPECT_EQ(info.shared, read_by_peers) << info.name;
    }
  }
}

TEST(BuildTrainSchedule, OptimizerStateFollowsOptions) {
  Strategy strategy = strategy_of(2, 2);
  const Model model = small_gpt(1, 2, true, strategy);
  const auto has = [](const Schedule& schedule, BufferRole role) {
    const auto& buffers = schedule.programs[0].buffers;
    return std::any_of(buffers.begin(), buffers.end(), [&](const BufferInfo& info) { return info.role == role; });
  };
  EXPECT_TRUE(has(build_train_schedule(model, strategy, 2, {true, true}), BufferRole::kExpAvg));
  EXPECT_FALSE(has(build_train_schedule(model, strategy, 2, {true, false}), BufferRole::kExpAvg));
  EXPECT_EQ(count_ops(build_train_schedule(model, strategy, 2, {true, true}).programs[0], OpKind::kClip), 1);
  EXPECT_EQ(count_ops(build_train_schedule(model, strategy, 2, {false, true}).programs[0], OpKind::kClip), 0);
  strategy.param_dtype = DType::kFloat32;
  EXPECT_FALSE(has(build_train_schedule(small_gpt(1, 2, true, strategy), strategy, 2, {}), BufferRole::kMaster));
}

TEST(BuildTrainSchedule, GradientsOfSeveralMicroBatchesAddUpInFloat32) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (int accumulation : {1, 2}) {
      for (auto policy : {AccumulationPolicy::kLocalSum, AccumulationPolicy::kReduceEach}) {
        Strategy strategy = strategy_of(2, 2);
        strategy.param_dtype = dtype;
        strategy.accumulation = accumulation;
        strategy.accumulation_policy = policy;
        const Program program = built(small_gpt(1, 2, true, strategy), strategy);
        const bool wide = accumulation > 1 && policy == AccumulationPolicy::kLocalSum;
        for (const auto& info : program.buffers) {
          const DType expected = info.role == BufferRole::kReducedGrad ? strategy.reduce_dtype : wide ? DType::kFloat32 : dtype;
          if (info.category == Category::kGrads) {
            EXPECT_EQ(info.dtype, expected) << info.name;
          }
        }
      }
    }
  }
}

TEST(BuildForwardSchedule, SavesNothingAndKeepsOneBoundary) {
  const Strategy strategy = strategy_of(3, 2);
  const Model model = small_gpt(3, 2, true, strategy);
  const Schedule schedule = build_forward_schedule(model, strategy, 2);
  const Program& program = schedule.programs[0];
  EXPECT_EQ(count_ops(program, OpKind::kForward), 8);
  EXPECT_EQ(count_ops(program, OpKind::kBackward), 0);
  EXPECT_EQ(count_ops(program, OpKind::kGather), 5);
  for (const auto& op : program.ops) EXPECT_TRUE(op.kind != OpKind::kForward || !op.save);
  const Bytes hidden = model.units[0].segments[0].cost.out;
  EXPECT_EQ(memory_walk(program).category_peak[static_cast<int>(Category::kActivations)], 2 * hidden);
}

void expect_refused(const Model& model, const Strategy& strategy, int ranks, const std::string& word) {
  try {
    (void)build_train_schedule(model, strategy, ranks, {});
    ADD_FAILURE() << "accepted, though it should name " << word;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    EXPECT_FALSE(error.remedy().empty());
  }
}

TEST(BuildTrainSchedule, RefusesWhatItCannotDo) {
  const Strategy good = strategy_of(3, 2);
  const Model model = small_gpt(1, 2, true, good);
  const auto refused = [&](const std::string& word, const std::function<void(Strategy&)>& change) {
    Strategy strategy = good;
    change(strategy);
    expect_refused(model, strategy, 2, word);
  };
  refused("tp 2", [](Strategy& s) { s.tp = 2; });
  refused("pp 2", [](Strategy& s) { s.pp = 2; });
  refused("zero", [](Strategy& s) { s.zero = 4; });
  refused("4 ranks", [](Strategy& s) { s.dp_shard = 4; });
  refused("ccumulation", [](Strategy& s) { s.accumulation = 0; });
  refused("prefetch", [](Strategy& s) { s.prefetch = -1; });
  refused("selective", [](Strategy& s) { s.recompute = Recompute::kSelective; });
  refused("offload", [](Strategy& s) { s.offload = true; });
  refused("int32", [](Strategy& s) { s.reduce_dtype = DType::kInt32; });
  refused("float32", [](Strategy& s) { s.param_dtype = DType::kFloat32; });  // the model's costs are bfloat16's
  refused("separate_gradient", [](Strategy& s) { s.accumulation = 2; });
  refused("reduce_dtype", [](Strategy& s) {
    s.accumulation = 2;
    s.accumulation_policy = AccumulationPolicy::kReduceEach;
    s.reduce_dtype = DType::kBFloat16;
  });
  Model uneven = model;
  uneven.groups[0].padded += 1;
  expect_refused(uneven, good, 2, "shards");
  Model unused = model;
  unused.groups.push_back(unused.groups.back());
  unused.groups.back().name = "spare";
  expect_refused(unused, good, 2, "spare");
  Model wrong = model;
  wrong.units[1].segments[0].groups = {99};
  expect_refused(wrong, good, 2, "99");
  Model empty = model;
  empty.units.clear();
  expect_refused(empty, good, 2, "units");
  Model hollow = model;
  hollow.units[1].segments.clear();
  expect_refused(hollow, good, 2, "segments");
}

}  // namespace
}  // namespace wirewise::test
