// The facts that torchrun, lockstep launch and mpirun tell.
#include <lockstep/tests/catch.h>

#include <lockstep/tests/parallel/world/environments.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr const char* kAgentStore = "TORCHELASTIC_USE_AGENT_STORE";

// Open MPI on two hosts with two and one processes; on the second one.
Variables open_mpi_on_two_hosts() {
  return with(open_mpi_variables(), {{"OMPI_COMM_WORLD_RANK", "2"},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
}

}  // namespace

TEST_CASE("torchrun tells the place, the local place, the master, and that its agent serves the store") {
  const World expected{.process = 5,
                       .processes = 6,
                       .local_process = 1,
                       .local_processes = 2,
                       .master_host = "node7",
                       .master_port = 29511,
                       .store_runs = true,
                       .run = "night/0/",
                       .launch = "night",
                       .max_restarts = 3,
                       .launcher = "torchrun"};
  CHECK(world_in(torchrun_variables()) == expected);
}

TEST_CASE("without torchrun's agent process 0 serves the store, at torch's port if none is named") {
  auto variables = without(without(torchrun_variables(), kAgentStore), "MASTER_PORT");
  CHECK_FALSE(world_in(variables).store_runs);
  CHECK(world_in(variables).master_port == 29500);
  variables[kAgentStore] = "False";
  CHECK_FALSE(world_in(variables).store_runs);
}

TEST_CASE("a restart by torchrun is another run") {
  const auto restarted = with(torchrun_variables(), {{"TORCHELASTIC_RESTART_COUNT", "2"}});
  CHECK(world_in(restarted).run == "night/2/");
  CHECK(world_in(restarted).restart == 2);
  const auto alone = world_in(
      with(restarted, {{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_WORLD_SIZE", "1"}}));
  CHECK(alone.restart == 2);
  CHECK(alone.launch == "night");
  CHECK(alone.max_restarts == 3);
  const Variables bare{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
  CHECK(world_in(bare).run == "/0/");
}

TEST_CASE("torchrun's launches without a name differ in the folder of their logs") {
  const auto of = [](const std::string& run, const std::string& file) {
    return world_in(
               with(torchrun_variables(), {{"TORCHELASTIC_RUN_ID", run}, {"TORCHELASTIC_ERROR_FILE", file}}))
        .launch;
  };
  CHECK(of("none", "/tmp/torchelastic_ab/none_cd/attempt_1/0/error.json") == "/tmp/torchelastic_ab/none_cd");
  CHECK(of("none", "").empty());
  CHECK(of("night", "/tmp/torchelastic_ab/night_cd/attempt_1/0/error.json") == "night");
}

TEST_CASE("RANK, WORLD_SIZE and MASTER_ADDR are enough: the processes of a host are counted later") {
  const Variables bare{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1"}};
  const World expected{.process = 1,
                       .processes = 2,
                       .local_process = 0,
                       .local_processes = 0,
                       .master_host = "::1",
                       .master_port = 29500,
                       .run = "/0/",
                       .launcher = "torchrun"};
  CHECK(world_in(bare) == expected);
}

TEST_CASE("a MASTER_ADDR that is no host is refused at once, and a world of one process needs none") {
  for (const std::string wrong : {"tcp://node1", "node1:29500", "10.0.0.1:29500", " ", "node1 ", "\tnode1",
                                  "[::1]", "node1/", "::1::2"}) {
    for (const auto& variables : {torchrun_variables(), with(open_mpi_variables(), {{"MASTER_PORT", "1"}})}) {
      CHECK(refusal(with(variables, {{"MASTER_ADDR", wrong}})) ==
            "MASTER_ADDR is '" + wrong +
                "', but it must be the name or the address of a host | give the host alone, such as node1, "
                "10.0.0.1 or fd00::1; MASTER_PORT takes the port");
    }
    CHECK_NOTHROW(world_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", wrong}}));
  }
  for (const std::string right :
       {"node1", "node_1.cluster.local", "10.0.0.1", "::1", "fe80::1%eth0", "localhost"}) {
    CHECK(world_in(with(torchrun_variables(), {{"MASTER_ADDR", right}})).master_host == right);
  }
}

TEST_CASE("torchrun without MASTER_ADDR is refused, and the hint asks for the master's address") {
  const auto text = "RANK and WORLD_SIZE are set, but MASTER_ADDR is missing | give the master's address: ";
  CHECK_THAT(refusal(without(torchrun_variables(), "MASTER_ADDR")), ContainsSubstring(text));
  CHECK_THAT(refusal(with(torchrun_variables(), {{"MASTER_ADDR", ""}})), ContainsSubstring(text));
}

TEST_CASE("lockstep launch tells as torchrun does, and a secret that is part of the run") {
  const Variables variables{{"RANK", "1"},
                            {"LOCAL_RANK", "1"},
                            {"WORLD_SIZE", "2"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "127.0.0.1"},
                            {"MASTER_PORT", "40123"},
                            {kAgentStore, "True"},
                            {"TORCHELASTIC_RUN_ID", "launch"},
                            {"TORCHELASTIC_RESTART_COUNT", "1"},
                            {"TORCHELASTIC_MAX_RESTARTS", "1"},
                            {"LOCKSTEP_RUN_LAUNCHER", "lockstep"},
                            {"LOCKSTEP_RUN_TOKEN", "0123456789abcdef"}};
  const World expected{.process = 1,
                       .processes = 2,
                       .local_process = 1,
                       .local_processes = 2,
                       .master_host = "127.0.0.1",
                       .master_port = 40123,
                       .store_runs = true,
                       .run = "launch/1/0123456789abcdef",
                       .launch = "launch",
                       .restart = 1,
                       .max_restarts = 1,
                       .launcher = "lockstep launch"};
  CHECK(world_in(variables) == expected);
  CHECK(refusal(without(variables, "WORLD_SIZE")) ==
        "half of lockstep launch's environment: RANK set, WORLD_SIZE missing | start the process with the "
        "launcher, or unset these variables to train in one process");
}

TEST_CASE("Open MPI's processes of one host meet on loopback, at a port of their job") {
  const World expected{.process = 1,
                       .processes = 3,
                       .local_process = 1,
                       .local_processes = 3,
                       .master_host = "127.0.0.1",
                       .master_port = 35050,  // FNV-1a of "310116353", by a Python script
                       .run = "310116353",
                       .launcher = "Open MPI"};
  CHECK(world_in(open_mpi_variables()) == expected);

  // Version 5 names the job elsewhere.
  auto later = without(open_mpi_variables(), "OMPI_MCA_ess_base_jobid");
  later["PMIX_NAMESPACE"] = "prterun-vm-42@1";
  CHECK(world_in(later).run == "prterun-vm-42@1");
  CHECK(world_in(later).master_port == 36565);
}

TEST_CASE("MPICH's processes of one host meet on loopback; it names no job") {
  const World expected{.process = 1,
                       .processes = 2,
                       .local_process = 1,
                       .local_processes = 2,
                       .master_host = "127.0.0.1",
                       .master_port = 29500,
                       .run = "",
                       .launcher = "MPICH"};
  CHECK(world_in(mpich_variables()) == expected);
  const auto named = world_in(with(mpich_variables(), {{"PMI_JOBID", "876439.0"}}));
  CHECK(named.run == "876439.0");
  CHECK(named.master_port == 31324);
  // The port of a proxy, which differs between hosts.
  CHECK(world_in(with(mpich_variables(), {{"PMI_PORT", "node7:40000"}})).run.empty());
}

TEST_CASE("mpirun on several hosts needs the master's address") {
  const auto variables = open_mpi_on_two_hosts();
  CHECK_THAT(refusal(variables),
             ContainsSubstring("Open MPI has started 3 processes on several hosts, but MASTER_ADDR is not set"
                               " | give the master's address: "));
  CHECK_FALSE(refusal(with(variables, {{"MASTER_PORT", "29600"}})).empty());
  const auto mpich = with(mpich_variables(), {{"MPI_LOCALNRANKS", "1"}, {"MPI_LOCALRANKID", "0"}});
  CHECK_THAT(refusal(mpich), ContainsSubstring("MPICH has started 2 processes on several hosts"));
  // It may not tell the local numbers: then nobody knows that one host has all.
  const auto silent = without(without(mpich_variables(), "MPI_LOCALNRANKS"), "MPI_LOCALRANKID");
  CHECK_THAT(refusal(silent), ContainsSubstring("MPICH has started 2 processes on several hosts"));

  const World expected{.process = 2,
                       .processes = 3,
                       .local_process = 0,
                       .local_processes = 1,
                       .master_host = "a",
                       .master_port = 29600,
                       .run = "310116353",
                       .launcher = "Open MPI"};
  CHECK(world_in(with(variables, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "29600"}})) == expected);
  CHECK(world_in(variables, {.master = "a:29600"}) == expected);
}

TEST_CASE("a user may name the port alone, for mpirun on one host") {
  const auto world = world_in(with(open_mpi_variables(), {{"MASTER_PORT", "29600"}}));
  CHECK(world.master_host == "127.0.0.1");
  CHECK(world.master_port == 29600);
  CHECK(world_in(with(mpich_variables(), {{"MASTER_PORT", "29600"}})).master_port == 29600);
}

TEST_CASE("one process under a launcher is alone, and knows the launcher") {
  const auto torchrun =
      with(torchrun_variables(),
           {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}});
  const World alone{.launch = "night", .max_restarts = 3, .launcher = "torchrun"};
  CHECK(world_in(torchrun) == alone);
  CHECK(world_in(without(torchrun, "MASTER_ADDR")) == alone);
  const auto mpi = with(open_mpi_variables(), {{"OMPI_COMM_WORLD_RANK", "0"},
                                               {"OMPI_COMM_WORLD_SIZE", "1"},
                                               {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  CHECK(world_in(mpi) == World{.launcher = "Open MPI"});
  CHECK(world_in(mpi, {.master = "a:1"}) == World{.launcher = "Open MPI"});
  CHECK(world_in({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}) == World{.launcher = "MPICH"});
}

TEST_CASE("half an environment is refused with what is set and what is missing") {
  const auto half = [](const std::string& launcher, const std::string& set, const std::string& missing) {
    return "half of " + launcher + "'s environment: " + set + " set, " + missing + " missing | start the " +
           "process with the launcher, or unset these variables to train in one process";
  };
  CHECK(refusal(without(torchrun_variables(), "RANK")) == half("torchrun", "WORLD_SIZE", "RANK"));
  CHECK(refusal(without(torchrun_variables(), "WORLD_SIZE")) == half("torchrun", "RANK", "WORLD_SIZE"));
  const std::string open_mpi_rank = "OMPI_COMM_WORLD_RANK", open_mpi_size = "OMPI_COMM_WORLD_SIZE";
  CHECK(refusal(without(open_mpi_variables(), open_mpi_rank)) ==
        half("Open MPI", open_mpi_size, open_mpi_rank));
  CHECK(refusal(without(open_mpi_variables(), open_mpi_size)) ==
        half("Open MPI", open_mpi_rank, open_mpi_size));
  CHECK(refusal(without(mpich_variables(), "PMI_RANK")) == half("MPICH", "PMI_SIZE", "PMI_RANK"));
  CHECK(refusal(without(mpich_variables(), "PMI_SIZE")) == half("MPICH", "PMI_RANK", "PMI_SIZE"));
}
