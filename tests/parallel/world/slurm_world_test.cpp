// The facts that srun tells.
#include <lockstep/tests/catch.h>

#include <lockstep/tests/parallel/world/environments.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// As srun --mpi=pmi2 sets them beside SLURM's: without local numbers.
Variables pmi2_variables() {
  return with(slurm_variables(),
              {{"PMI_FD", "10"}, {"PMI_JOBID", "876440.0"}, {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}});
}

// The world that slurm_variables() mean. The port is FNV-1a of "876440.0", by a Python script.
std::string slurm_expected(const char* local = "1/2", const char* master = "n2:33284") {
  return fmt::format("3/4, on its host {}, at {}, run 876440.0, launch , restart 0/0, by SLURM", local,
                     master);
}

}  // namespace

TEST_CASE("SLURM's processes of several hosts meet on the first host of the step, at a port of the step") {
  CHECK(text_of(world_in(slurm_variables())) == slurm_expected());
  CHECK(world_in(with(slurm_variables(), {{"SLURM_PROCID", "0"}})).master_port == 33284);
  CHECK(world_in(with(slurm_variables(), {{"SLURM_STEP_ID", "1"}})).master_port == 30903);
  CHECK(world_in(with(slurm_variables(), {{"SLURM_STEP_ID", "1"}})).run == "876440.1");
  CHECK(world_in(with(slurm_variables(), {{"SLURM_JOB_ID", "876441"}})).master_port == 31003);
  // Without the step's hosts the job's.
  CHECK(world_in(without(slurm_variables(), {"SLURM_STEP_NODELIST"})).master_host == "n1");
}

TEST_CASE("SLURM's processes of one host meet on loopback") {
  CHECK(text_of(world_in(slurm_on_one_host(), {}, none_resolve)) == slurm_expected("3/4", "127.0.0.1:33284"));
}

TEST_CASE("the step's number of processes counts, not the job's") {
  CHECK(text_of(world_in(with(slurm_variables(), {{"SLURM_NTASKS", "8"}}))) == slurm_expected());
  CHECK(text_of(world_in(without(slurm_variables(), {"SLURM_NTASKS"}))) == slurm_expected());
  CHECK(text_of(world_in(without(slurm_variables(), {"SLURM_STEP_NUM_TASKS"}))) == slurm_expected());
  const auto one = with(slurm_on_one_host(), {{"SLURM_PROCID", "0"},
                                              {"SLURM_LOCALID", "0"},
                                              {"SLURM_STEP_NUM_TASKS", "1"},
                                              {"SLURM_STEP_TASKS_PER_NODE", "1"}});
  CHECK(world_in(one) == World{.launcher = "SLURM"});
}

TEST_CASE("a batch script of SLURM is alone") {
  const Variables script{{"SLURM_JOB_ID", "868388"},
                         {"SLURM_JOB_NODELIST", "n[1-2]"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "0"},
                         {"SLURM_NTASKS", "2"},
                         {"SLURM_PROCID", "0"},
                         {"SLURM_TASKS_PER_NODE", "1(x2)"},
                         {"SLURM_NTASKS_PER_NODE", "1"}};
  CHECK(world_in(script) == World{});
  CHECK(world_in({{"SLURM_STEP_ID", "0"}}) == World{});
}

TEST_CASE("a first host that does not resolve gives way to the launching one, if that is this host") {
  const auto from = [](const std::string& address) {
    return with(slurm_variables(), {{"SLURM_LAUNCH_NODE_IPADDR", address}});
  };
  CHECK(world_in(from("127.0.0.1"), {}, none_resolve).master_host == "127.0.0.1");
  CHECK(world_in(from("127.0.0.1"), {}, all_resolve).master_host == "n2");
  const auto text = "the first host of SLURM's job, n2, does not resolve | give the master's address: ";
  CHECK_THAT(refusal(from("192.0.2.1"), {}, none_resolve), ContainsSubstring(text));  // no host has it
  CHECK_THAT(refusal(from("localhost"), {}, none_resolve), ContainsSubstring(text));  // no address
  CHECK_THAT(refusal(without(slurm_variables(), {"SLURM_LAUNCH_NODE_IPADDR"}), {}, none_resolve),
             ContainsSubstring(text));
  // Whom it asks for: the first host alone.
  CHECK(world_in(slurm_variables(), {}, [](const std::string& name) { return name == "n2"; }).master_host ==
        "n2");
}

TEST_CASE("an own address is one to which a socket can be bound") {
  CHECK(is_own_address("127.0.0.1"));
  CHECK_FALSE(is_own_address("192.0.2.1"));
  CHECK_FALSE(is_own_address("localhost"));
  CHECK_FALSE(is_own_address(""));
  CHECK(host_resolves("127.0.0.1"));
  CHECK_FALSE(host_resolves(""));
}

TEST_CASE("a master that the user has set goes before SLURM's hosts") {
  const Variables both{{"MASTER_ADDR", "a"}, {"MASTER_PORT", "29600"}};
  CHECK(text_of(world_in(with(slurm_variables(), both), {}, none_resolve)) ==
        slurm_expected("1/2", "a:29600"));
  // The port alone: the hosts still are SLURM's.
  const Variables port{{"MASTER_PORT", "29600"}};
  CHECK(text_of(world_in(with(slurm_variables(), port))) == slurm_expected("1/2", "n2:29600"));
}

TEST_CASE("srun with MPICH's interface is SLURM all the same") {
  CHECK(text_of(world_in(pmi2_variables())) == slurm_expected());
  // An mpirun inside a step starts processes of its own, with SLURM's variables of the one that it is in.
  const auto inner = with(mpich_variables(), {{"SLURM_JOB_ID", "868388"},
                                              {"SLURM_STEP_ID", "0"},
                                              {"SLURM_PROCID", "0"},
                                              {"SLURM_NTASKS", "1"},
                                              {"SLURM_STEP_NUM_TASKS", "1"}});
  CHECK(world_in(inner) == world_in(mpich_variables()));
  const auto first = with(inner, {{"PMI_RANK", "0"}, {"MPI_LOCALRANKID", "0"}});  // SLURM_PROCID is 0, too
  CHECK(world_in(first).launcher == "MPICH");
  CHECK(world_in(first).processes == 2);
  const auto as_many = with(first, {{"SLURM_NTASKS", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  CHECK(world_in(as_many).launcher == "MPICH");
  // One that does not tell the local numbers is known by its other rank or size.
  const auto silent = without(inner, {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  CHECK_THAT(refusal(silent), ContainsSubstring("MPICH has started 2"));
  CHECK_THAT(refusal(with(silent, {{"PMI_RANK", "0"}})), ContainsSubstring("MPICH has started 2"));
  CHECK_THAT(refusal(with(silent, {{"SLURM_STEP_NUM_TASKS", "2"}})),
             ContainsSubstring("MPICH has started 2"));
  // Outside a step.
  CHECK_THAT(refusal(without(pmi2_variables(), {"SLURM_STEP_ID"})), ContainsSubstring("MPICH has started 4"));
}

TEST_CASE("processes of a host are counted later where SLURM does not tell how many there are") {
  for (const auto& variables :
       {without(slurm_variables(), {"SLURM_STEP_TASKS_PER_NODE"}),
        without(slurm_variables(), {"SLURM_NODEID"}), with(slurm_variables(), {{"SLURM_NODEID", "2"}})}) {
    CHECK(text_of(world_in(variables)) == slurm_expected("1/0"));
  }
}

TEST_CASE("SLURM's lists and numbers that are none, or contradict, are refused") {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"SLURM_STEP_NODELIST", "n[2", "'n[2' is no list of hosts of SLURM | start the processes with srun"},
      {"SLURM_STEP_TASKS_PER_NODE", "2(x",
       "'2(x' is no list of tasks per host of SLURM | start the processes"},
      {"SLURM_NODEID", "-1", "SLURM_NODEID is '-1'"},
      {"SLURM_LOCALID", "x", "SLURM_LOCALID is 'x'"},
      {"SLURM_LOCALID", "2", "local rank 2 among 2 processes of its host"},
      {"SLURM_STEP_TASKS_PER_NODE", "5(x2)", "rank 1 among 5"}};
  for (const auto& [name, text, words] : cases) {
    CHECK_THAT(refusal(with(slurm_variables(), {{name, text}})), ContainsSubstring(words));
  }
  auto nowhere = without(slurm_variables(), {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"});
  CHECK_THAT(refusal(nowhere), ContainsSubstring("'' is no list of hosts"));
}
