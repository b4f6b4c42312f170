// The facts that torchrun, lockstep launch and mpirun tell.
#include <lockstep/tests/catch.h>

#include <lockstep/tests/parallel/world/environments.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

constexpr const char* kAgentStore = "TORCHELASTIC_USE_AGENT_STORE";

// Open MPI on two hosts with two and one processes; on the second one.
Variables open_mpi_on_two_hosts() {
  return with(open_mpi_variables(), {{"OMPI_COMM_WORLD_RANK", "2"},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
}

// As lockstep launch sets them; its secret is part of the run.
Variables launch_variables() {
  return with(torchrun_variables(), {{"RANK", "1"},
                                     {"WORLD_SIZE", "2"},
                                     {"MASTER_ADDR", "127.0.0.1"},
                                     {"MASTER_PORT", "40123"},
                                     {"TORCHELASTIC_RUN_ID", "launch"},
                                     {"TORCHELASTIC_RESTART_COUNT", "1"},
                                     {"TORCHELASTIC_MAX_RESTARTS", "1"},
                                     {"LOCKSTEP_RUN_LAUNCHER", "lockstep"},
                                     {"LOCKSTEP_RUN_TOKEN", "0123456789abcdef"}});
}

}  // namespace

TEST_CASE("the world that each launcher tells") {
  const Variables bare{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1"}},
      port{{"MASTER_PORT", "29600"}}, both{{"MASTER_ADDR", "a"}, {"MASTER_PORT", "29600"}};
  // Version 5 of Open MPI names the job elsewhere.
  const auto later = with(without(open_mpi_variables(), {"OMPI_MCA_ess_base_jobid"}),
                          {{"PMIX_NAMESPACE", "prterun-vm-42@1"}});
  struct Case {
    const char* what;
    Variables variables;
    const char* world;
  };
  // The ports of jobs are FNV-1a of their names, by a Python script.
  const Case cases[] = {
      {"torchrun, whose agent serves the store", torchrun_variables(),
       "5/6, on its host 1/2, at node7:29511 served, run night/0/, launch night, restart 0/3, by torchrun"},
      {"torchrun without an agent's store: process 0 serves it",
       with(torchrun_variables(), {{kAgentStore, "False"}}),
       "5/6, on its host 1/2, at node7:29511, run night/0/, launch night, restart 0/3, by torchrun"},
      {"and at torch's port if none is named", without(torchrun_variables(), {kAgentStore, "MASTER_PORT"}),
       "5/6, on its host 1/2, at node7:29500, run night/0/, launch night, restart 0/3, by torchrun"},
      {"a restart by torchrun is another run",
       with(torchrun_variables(), {{"TORCHELASTIC_RESTART_COUNT", "2"}}),
       "5/6, on its host 1/2, at node7:29511 served, run night/2/, launch night, restart 2/3, by torchrun"},
      {"RANK, WORLD_SIZE and MASTER_ADDR are enough", bare,
       "1/2, on its host 0/0, at ::1:29500, run /0/, launch , restart 0/0, by torchrun"},
      {"lockstep launch", launch_variables(),
       "1/2, on its host 1/2, at 127.0.0.1:40123 served, run launch/1/0123456789abcdef, launch launch, "
       "restart 1/1, by lockstep launch"},
      {"Open MPI on one host: loopback, at a port of its job", open_mpi_variables(),
       "1/3, on its host 1/3, at 127.0.0.1:35050, run 310116353, launch , restart 0/0, by Open MPI"},
      {"Open MPI 5", later,
       "1/3, on its host 1/3, at 127.0.0.1:36565, run prterun-vm-42@1, launch , restart 0/0, by Open MPI"},
      {"Open MPI with a port of the user's", with(open_mpi_variables(), port),
       "1/3, on its host 1/3, at 127.0.0.1:29600, run 310116353, launch , restart 0/0, by Open MPI"},
      {"Open MPI on two hosts with a master", with(open_mpi_on_two_hosts(), both),
       "2/3, on its host 0/1, at a:29600, run 310116353, launch , restart 0/0, by Open MPI"},
      {"MPICH, which names no job", mpich_variables(),
       "1/2, on its host 1/2, at 127.0.0.1:29500, run , launch , restart 0/0, by MPICH"},
      {"MPICH that names its job", with(mpich_variables(), {{"PMI_JOBID", "876439.0"}}),
       "1/2, on its host 1/2, at 127.0.0.1:31324, run 876439.0, launch , restart 0/0, by MPICH"},
      {"the port of a proxy of MPICH, which differs between hosts",
       with(mpich_variables(), {{"PMI_PORT", "node7:40000"}}),
       "1/2, on its host 1/2, at 127.0.0.1:29500, run , launch , restart 0/0, by MPICH"},
      {"MPICH with a port of the user's", with(mpich_variables(), port),
       "1/2, on its host 1/2, at 127.0.0.1:29600, run , launch , restart 0/0, by MPICH"}};
  for (const auto& [what, variables, world] : cases) {
    INFO(what);
    CHECK(text_of(world_in(variables)) == world);
  }
  CHECK(world_in(open_mpi_on_two_hosts(), {.master = "a:29600"}) ==
        world_in(with(open_mpi_on_two_hosts(), both)));
}

TEST_CASE("torchrun's launches without a name differ in the folder of their logs") {
  const auto of = [](const std::string& run, const std::string& file) {
    const Variables both{{"TORCHELASTIC_RUN_ID", run}, {"TORCHELASTIC_ERROR_FILE", file}};
    return world_in(with(torchrun_variables(), both)).launch;
  };
  CHECK(of("none", "/tmp/torchelastic_ab/none_cd/attempt_1/0/error.json") == "/tmp/torchelastic_ab/none_cd");
  CHECK(of("none", "").empty());
  CHECK(of("night", "/tmp/torchelastic_ab/night_cd/attempt_1/0/error.json") == "night");
}

TEST_CASE("a MASTER_ADDR that is no host is refused at once, and a world of one process needs none") {
  for (const std::string wrong : {"tcp://node1", "node1:29500", "10.0.0.1:29500", " ", "node1 ", "\tnode1",
                                  "[::1]", "node1/", "::1::2"}) {
    for (const auto& variables : {torchrun_variables(), with(open_mpi_variables(), {{"MASTER_PORT", "1"}})}) {
      CHECK_THAT(
          refusal(with(variables, {{"MASTER_ADDR", wrong}})),
          StartsWith("MASTER_ADDR is '" + wrong + "', but it must be the name or the address of a host") &&
              ContainsSubstring(" | give the host alone, "));
    }
    CHECK_NOTHROW(world_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", wrong}}));
  }
  for (const std::string right :
       {"node1", "node_1.cluster.local", "10.0.0.1", "::1", "fe80::1%eth0", "localhost"}) {
    CHECK(world_in(with(torchrun_variables(), {{"MASTER_ADDR", right}})).master_host == right);
  }
}

TEST_CASE(
    "without the master's address torchrun, and mpirun on several hosts, are refused; the hint asks for it") {
  const std::string mpich = "MPICH has started 2 processes on several hosts, but MASTER_ADDR is not set";
  const std::pair<Variables, std::string> cases[] = {
      {without(torchrun_variables(), {"MASTER_ADDR"}),
       "RANK and WORLD_SIZE are set, but MASTER_ADDR is missing"},
      {with(torchrun_variables(), {{"MASTER_ADDR", ""}}),
       "RANK and WORLD_SIZE are set, but MASTER_ADDR is missing"},
      {open_mpi_on_two_hosts(),
       "Open MPI has started 3 processes on several hosts, but MASTER_ADDR is not set"},
      {with(open_mpi_on_two_hosts(), {{"MASTER_PORT", "29600"}}), "Open MPI has started 3 processes"},
      {mpich_on_two_hosts(), mpich},
      // It may not tell the local numbers: then nobody knows that one host has all.
      {without(mpich_variables(), {"MPI_LOCALNRANKS", "MPI_LOCALRANKID"}), mpich}};
  for (const auto& [variables, words] : cases) {
    CHECK_THAT(refusal(variables), StartsWith(words) && ContainsSubstring(" | give the master's address: "));
  }
}

TEST_CASE("one process under a launcher is alone, and knows the launcher") {
  auto torchrun = with(torchrun_variables(),
                       {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}});
  World alone{.launch = "night", .max_restarts = 3, .launcher = "torchrun"};
  CHECK(world_in(torchrun) == alone);
  CHECK(world_in(without(torchrun, {"MASTER_ADDR"})) == alone);
  torchrun["TORCHELASTIC_RESTART_COUNT"] = "2";
  alone.restart = 2;
  CHECK(world_in(torchrun) == alone);
  const auto mpi = with(open_mpi_variables(), {{"OMPI_COMM_WORLD_RANK", "0"},
                                               {"OMPI_COMM_WORLD_SIZE", "1"},
                                               {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  CHECK(world_in(mpi) == World{.launcher = "Open MPI"});
  CHECK(world_in(mpi, {.master = "a:1"}) == World{.launcher = "Open MPI"});
  CHECK(world_in({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}) == World{.launcher = "MPICH"});
}

TEST_CASE("half an environment is refused with what is set and what is missing") {
  struct Case {
    const char* launcher;
    Variables variables;
    const char *missing, *set;
  };
  const Case cases[] = {
      {"torchrun", torchrun_variables(), "RANK", "WORLD_SIZE"},
      {"torchrun", torchrun_variables(), "WORLD_SIZE", "RANK"},
      {"lockstep launch", launch_variables(), "WORLD_SIZE", "RANK"},
      {"Open MPI", open_mpi_variables(), "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"Open MPI", open_mpi_variables(), "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
      {"MPICH", mpich_variables(), "PMI_RANK", "PMI_SIZE"},
      {"MPICH", mpich_variables(), "PMI_SIZE", "PMI_RANK"},
      {"SLURM", slurm_variables(), "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
      {"SLURM", without(slurm_variables(), {"SLURM_STEP_NUM_TASKS"}), "SLURM_NTASKS", "SLURM_PROCID"}};
  for (const auto& [launcher, variables, missing, set] : cases) {
    CHECK_THAT(
        refusal(without(variables, {missing})),
        StartsWith(fmt::format("half of {}'s environment: {} set, {} missing | ", launcher, set, missing)));
  }
}
