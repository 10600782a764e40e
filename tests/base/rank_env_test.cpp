// Which rank a process is: tables of what launchers set, and of what goes wrong.
#include "wirewise/base/rank_env.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "wirewise/base/error.h"

namespace wirewise {
namespace {

using Set = std::map<std::string, std::string>;

Variables from(Set set) {
  return [set = std::move(set)](std::string_view name) -> std::optional<std::string> {
    const auto found = set.find(std::string(name));
    return found == set.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

const Set kTorchrun{{"RANK", "5"},
                    {"WORLD_SIZE", "8"},
                    {"LOCAL_RANK", "1"},
                    {"LOCAL_WORLD_SIZE", "4"},
                    {"GROUP_RANK", "1"},
                    {"MASTER_ADDR", "node1"},
                    {"MASTER_PORT", "29500"},
                    {"TORCHELASTIC_RUN_ID", "x"},
                    {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Set kStep{{"SLURM_JOB_ID", "77"},
                {"SLURM_STEP_ID", "0"},
                {"SLURM_PROCID", "3"},
                {"SLURM_NTASKS", "5"},
                {"SLURM_STEP_NUM_TASKS", "5"},
                {"SLURM_LOCALID", "0"},
                {"SLURM_NODEID", "1"},
                {"SLURM_NNODES", "2"},
                {"SLURM_STEP_NUM_NODES", "2"},
                {"SLURM_STEP_TASKS_PER_NODE", "3,2"},
                {"SLURM_STEP_NODELIST", "n[07-08]"}};
const Set kMpi{{"OMPI_COMM_WORLD_RANK", "1"},
               {"OMPI_COMM_WORLD_SIZE", "2"},
               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
               {"PMIX_NAMESPACE", "4711"}};

Set with(Set set, const Set& changes) {
  for (const auto& [name, value] : changes) {
    set[name] = value;
    if (value.empty()) set.erase(name);
  }
  return set;
}

TEST(RankEnvironment, NothingSetIsOneRankAlone) {
  const auto env = read_rank_environment(from({}));
  EXPECT_EQ(env.launcher, Launcher::kNone);
  EXPECT_EQ(env.rank, 0);
  EXPECT_EQ(env.ranks, 1);
}

TEST(RankEnvironment, ReadsTorchrun) {
  const auto env = read_rank_environment(from(kTorchrun));
  EXPECT_EQ(env.launcher, Launcher::kTorchrun);
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.ranks, 8);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_ranks, 4);
  EXPECT_EQ(env.node, 1);
  EXPECT_EQ(env.nodes, 2);
  EXPECT_EQ(env.master_addr, "node1");
  EXPECT_EQ(env.master_port, 29500);
  EXPECT_EQ(env.restarts, 2);
  EXPECT_FALSE(env.agent_store);
}

TEST(RankEnvironment, ReadsASlurmStep) {
  const auto env = read_rank_environment(from(kStep));
  EXPECT_EQ(env.launcher, Launcher::kSlurm);
  EXPECT_EQ(env.rank, 3);
  EXPECT_EQ(env.ranks, 5);
  EXPECT_EQ(env.local_rank, 0);
  EXPECT_EQ(env.local_ranks, 2);
  EXPECT_EQ(env.node, 1);
  EXPECT_EQ(env.nodes, 2);
  EXPECT_EQ(env.master_addr, "n07");
  EXPECT_GE(env.master_port, 1024);
  EXPECT_LT(env.master_port, 32768);
  // All ranks of a step derive one port; another step another.
  EXPECT_EQ(env.master_port,
            read_rank_environment(from(with(kStep, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}}))).master_port);
  EXPECT_NE(env.master_port, read_rank_environment(from(with(kStep, {{"SLURM_STEP_ID", "1"}}))).master_port);
}

TEST(RankEnvironment, TasksOfAHostFileMeetOnItsFirstHost) {
  // Slurm sorts the node list: with hosts 801, 869, 583, 752 in the file, rank 0 is on 801, and 583 stands first in the list.
  std::string folder = (std::filesystem::temp_directory_path() / "wirewise-rank-env-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string file = folder + "/hosts";
  const Set arbitrary = with(kStep, {{"SLURM_DISTRIBUTION", "arbitrary"}, {"SLURM_STEP_NODELIST", "n[583,752,801,869]"}, {"SLURM_HOSTFILE", file}});
  const auto refusal = [&](const Set& set) {
    try {
      return read_rank_environment(from(set)).master_addr;
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_NE(refusal(arbitrary).find(file + " can't be read"), std::string::npos) << refusal(arbitrary);
  EXPECT_NE(refusal(arbitrary).find("Set MASTER_ADDR"), std::string::npos);
  EXPECT_EQ(refusal(with(arbitrary, {{"MASTER_ADDR", "n801"}})), "n801");
  for (const char* text : {"n801\nn869\nn583\nn752\n", "# order\n\n  n801*2\r\nn583\n", "n[801,869]\nn583\n", "n801,n869\n"}) {
    std::ofstream(file) << text;
    EXPECT_EQ(refusal(arbitrary), "n801") << text;
  }
  EXPECT_EQ(refusal(with(arbitrary, {{"SLURM_DISTRIBUTION", "block"}})), "n583");
  EXPECT_NE(refusal(with(arbitrary, {{"SLURM_HOSTFILE", ""}})).find("SLURM_HOSTFILE is not set"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(RankEnvironment, ReadsOpenMpi) {
  const auto env = read_rank_environment(from(kMpi));
  EXPECT_EQ(env.launcher, Launcher::kOpenMpi);
  EXPECT_EQ(env.rank, 1);
  EXPECT_EQ(env.ranks, 2);
  EXPECT_EQ(env.local_ranks, 2);
  EXPECT_EQ(env.master_addr, "127.0.0.1");
}

TEST(RankEnvironment, AnAllocationIsNoStep) {
  // salloc's shell; the batch script; the interactive step in which newer versions run that shell; an allocation without tasks.
  const std::vector<Set> sets{{{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "8"}, {"SLURM_NNODES", "2"}},
                              {{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}},
                              {{"SLURM_JOB_ID", "77"},
                               {"SLURM_NTASKS", "8"},
                               {"SLURM_PROCID", "0"},
                               {"SLURM_LOCALID", "0"},
                               {"SLURM_STEP_ID", "4294967290"}},
                              {{"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}}};
  for (const Set& set : sets) EXPECT_EQ(read_rank_environment(from(set)).launcher, Launcher::kNone);
}

TEST(RankEnvironment, TheInnermostLauncherWins) {
  EXPECT_EQ(read_rank_environment(from(with(kStep, kTorchrun))).launcher, Launcher::kTorchrun);
  EXPECT_EQ(read_rank_environment(from(with(kStep, kMpi))).launcher, Launcher::kOpenMpi);
}

TEST(RankEnvironment, APrivateFolderNeedsNoMaster) {
  const auto env = read_rank_environment(
      from({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"WIREWISE_STORE", "/tmp/x"}}));
  EXPECT_EQ(env.store, "/tmp/x");
}

struct Refusal {
  Set variables;
  std::string names;  // must stand in the message
};

TEST(RankEnvironment, RefusesWhatIsHalfSetOrContradictory) {
  const std::vector<Refusal> refusals{
      {{{"RANK", "0"}}, "WORLD_SIZE is not set"},
      {{{"WORLD_SIZE", "2"}}, "RANK is not set"},
      {{{"LOCAL_RANK", "0"}}, "WORLD_SIZE is not set"},
      {with(kTorchrun, {{"RANK", "8"}}), "RANK is 8, but WORLD_SIZE is 8"},
      {with(kTorchrun, {{"RANK", "-1"}}), "RANK=-1"},
      {with(kTorchrun, {{"RANK", "one"}}), "RANK=one"},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE=0"},
      {with(kTorchrun, {{"LOCAL_RANK", "4"}}), "LOCAL_RANK is 4, but LOCAL_WORLD_SIZE is 4"},
      {with(kTorchrun, {{"LOCAL_RANK", ""}}), "LOCAL_RANK is not set"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE=9"},
      {with(kTorchrun, {{"MASTER_ADDR", ""}}), "MASTER_ADDR is not set"},
      {with(kTorchrun, {{"MASTER_PORT", ""}}), "MASTER_PORT is not set"},
      {with(kTorchrun, {{"MASTER_PORT", "66660"}}), "MASTER_PORT=66660"},
      {with(kTorchrun, {{"MASTER_PORT", "http"}}), "MASTER_PORT=http"},
      {with(kTorchrun, {{"MASTER_PORT", "29500\x1b[2J"}}), "29500\\x1b[2J"},
      {with(kStep, {{"SLURM_PROCID", "5"}}), "SLURM_PROCID is 5"},
      {with(kStep, {{"SLURM_LOCALID", ""}}), "SLURM_LOCALID is not set"},
      {with(kStep, {{"SLURM_LOCALID", "2"}}), "SLURM_LOCALID is 2"},
      {with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", ""}}), "SLURM_STEP_TASKS_PER_NODE is not set"},
      {with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "3(x"}}), "SLURM_STEP_TASKS_PER_NODE=3(x"},
      {with(kStep, {{"SLURM_STEP_NODELIST", ""}}), "SLURM_STEP_NODELIST"},
      {with(kStep, {{"SLURM_STEP_NODELIST", "n[3-"}}), "node list n[3-"},
      {with(kMpi, {{"OMPI_COMM_WORLD_SIZE", ""}}), "OMPI_COMM_WORLD_SIZE is not set"},
      {with(kMpi, {{"OMPI_COMM_WORLD_RANK", "2"}}), "OMPI_COMM_WORLD_RANK is 2"},
      {with(kMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}}), "MASTER_ADDR is not set"},
  };
  for (const auto& [variables, names] : refusals) {
    try {
      (void)read_rank_environment(from(variables));
      ADD_FAILURE() << "accepted what should say: " << names;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_NE(error.sentence().find(names), std::string::npos) << error.what() << "\nshould say: " << names;
      EXPECT_FALSE(error.remedy().empty()) << error.what();
    }
  }
}

TEST(AsTorchrunVariables, GivesTheSameRanksBack) {
  for (const Set& set : {kTorchrun, kStep, kMpi}) {
    const auto env = read_rank_environment(from(set));
    const auto again = read_rank_environment(as_torchrun_variables(env, from(with(set, {{"OTHER", "kept"}}))));
    EXPECT_EQ(again.rank, env.rank);
    EXPECT_EQ(again.ranks, env.ranks);
    EXPECT_EQ(again.local_rank, env.local_rank);
    EXPECT_EQ(again.local_ranks, env.local_ranks);
    EXPECT_EQ(again.node, env.node);
    EXPECT_EQ(again.nodes, env.nodes);
    EXPECT_EQ(again.master_addr, env.master_addr);
    EXPECT_EQ(again.master_port, env.master_port);
    EXPECT_EQ(again.restarts, env.restarts);
    EXPECT_EQ(as_torchrun_variables(env, from({{"OTHER", "kept"}}))("OTHER"), "kept");
  }
}

TEST(ChooseThreads, PrefersTheConfigurationThenTheVariableThenCores) {
  RankEnvironment env;
  env.local_ranks = 2;
  EXPECT_EQ(choose_threads(3, env, 8, from({{"OMP_NUM_THREADS", "5"}})).threads, 3);
  EXPECT_EQ(choose_threads(0, env, 8, from({{"OMP_NUM_THREADS", "5"}})).threads, 5);
  EXPECT_EQ(choose_threads(0, env, 8, from({})).threads, 4);
  EXPECT_EQ(choose_threads(0, env, 1, from({})).threads, 1);
  // torchrun sets 1 where nobody chose; a 1 that a person chose under another launcher holds.
  EXPECT_EQ(choose_threads(0, env, 8, from({{"OMP_NUM_THREADS", "1"}})).threads, 1);
  env.agent_store = true;
  EXPECT_EQ(choose_threads(0, env, 8, from({{"OMP_NUM_THREADS", "1"}})).threads, 4);
  EXPECT_THROW((void)choose_threads(0, env, 8, from({{"OMP_NUM_THREADS", "many"}})), Error);
}

}  // namespace
}  // namespace wirewise
