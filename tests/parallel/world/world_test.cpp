#include <lockstep/parallel/world/world.h>
#include <lockstep/tests/catch.h>
#include <stdlib.h>
#include <sys/utsname.h>

#include <set>

#include <lockstep/tests/parallel/world/environments.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

// The refusal of a variable that is no number.
auto no_number(const std::string& name, const std::string& text, int low, int high) {
  return StartsWith(
      fmt::format("{} is '{}', but it must be a number from {} to {} | ", name, text, low, high));
}

uint16_t port_of(const std::string& job) {
  return world_in(with(open_mpi_variables(), {{"OMPI_MCA_ess_base_jobid", job}})).master_port;
}

}  // namespace

TEST_CASE("without a launcher and flags a process is alone") {
  CHECK(world_in({}) == World{});
  CHECK(text_of(World{}) == "0/1, on its host 0/1, at :0, run , launch , restart 0/0, by ");
  // These alone name no launcher.
  CHECK(world_in({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}, {"LOCAL_RANK", "3"}}) == World{});
  CHECK(world_in({{"LOCKSTEP_RUN_LAUNCHER", "lockstep"}}) == World{});
}

TEST_CASE("the environment of this process is read as it is") {
  const auto environment = process_environment();
  ::setenv("LOCKSTEP_TEST_OF_WORLD", "a=b", 1);
  CHECK(environment("LOCKSTEP_TEST_OF_WORLD") == "a=b");
  ::setenv("LOCKSTEP_TEST_OF_WORLD", "", 1);
  CHECK(environment("LOCKSTEP_TEST_OF_WORLD") == "");
  ::unsetenv("LOCKSTEP_TEST_OF_WORLD");
  CHECK(environment("LOCKSTEP_TEST_OF_WORLD") == std::nullopt);
}

TEST_CASE("a host's own name is the system's") {
  utsname system{};
  REQUIRE(::uname(&system) == 0);
  CHECK(own_host_name() == system.nodename);
}

TEST_CASE("torchrun goes before Open MPI, Open MPI before MPICH, MPICH before SLURM") {
  auto variables = slurm_variables();
  CHECK(world_in(variables).launcher == "SLURM");
  variables.merge(mpich_variables());
  CHECK(world_in(variables) == world_in(mpich_variables()));
  variables.merge(open_mpi_variables());
  CHECK(world_in(variables) == world_in(open_mpi_variables()));
  variables.merge(torchrun_variables());
  CHECK(world_in(variables) == world_in(torchrun_variables()));
}

TEST_CASE("a launcher's environment that is not complete is an error, though another one's is") {
  auto variables = with(open_mpi_variables(), {{"RANK", "1"}});
  CHECK_THAT(refusal(variables), ContainsSubstring("half of torchrun's environment: RANK set"));
}

TEST_CASE("a rank or a world size that is none is refused with the text and the limits") {
  struct Case {
    Variables variables;
    const char* name;
    int low;
    std::vector<std::string> texts;
  };
  const std::vector<std::string> ranks{"-1", "", "x", "1x", "1 ", " 1", "+1", "1.0", "0x1", "99999999999"},
      sizes{"0", "-1", "", "x", "2x", "1048577", "99999999999"};
  for (const auto& [variables, name, low, texts] : {Case{torchrun_variables(), "RANK", 0, ranks},
                                                    {open_mpi_variables(), "OMPI_COMM_WORLD_RANK", 0, ranks},
                                                    {mpich_variables(), "PMI_RANK", 0, ranks},
                                                    {slurm_variables(), "SLURM_PROCID", 0, ranks},
                                                    {torchrun_variables(), "WORLD_SIZE", 1, sizes},
                                                    {mpich_variables(), "PMI_SIZE", 1, sizes}}) {
    for (const auto& text : texts) {
      CHECK_THAT(refusal(with(variables, {{name, text}})), no_number(name, text, low, 1048576));
    }
  }
}

TEST_CASE("a rank outside the world is refused") {
  struct Case {
    Variables variables;
    const char *rank, *value, *words;
  };
  const auto launched = with(torchrun_variables(), {{"LOCKSTEP_RUN_LAUNCHER", "lockstep"}});
  const Case cases[] = {
      {torchrun_variables(), "RANK", "6",
       "torchrun's RANK is 6, but WORLD_SIZE is 6 | ranks count from 0 to 5"},
      {launched, "RANK", "7", "lockstep launch's RANK is 7, but WORLD_SIZE is 6"},
      {open_mpi_variables(), "OMPI_COMM_WORLD_RANK", "1000",
       "Open MPI's OMPI_COMM_WORLD_RANK is 1000, but OMPI_COMM_WORLD_SIZE is 3 | ranks count from 0 to 2"},
      {mpich_variables(), "PMI_RANK", "2",
       "MPICH's PMI_RANK is 2, but PMI_SIZE is 2 | ranks count from 0 to 1"},
      {slurm_variables(), "SLURM_PROCID", "4", "SLURM's SLURM_PROCID is 4, but SLURM_STEP_NUM_TASKS is 4"}};
  for (const auto& [variables, rank, value, words] : cases) {
    CHECK_THAT(refusal(with(variables, {{rank, value}})), StartsWith(words));
  }
  // With the master by hand the place is the launcher's still.
  CHECK_THAT(refusal(with(torchrun_variables(), {{"RANK", "6"}}), {.master = "a:1"}),
             ContainsSubstring("torchrun's RANK is 6"));
  // Also in a world of one.
  CHECK_FALSE(refusal({{"RANK", "1"}, {"WORLD_SIZE", "1"}}).empty());
}

TEST_CASE("local numbers that contradict each other or the world are refused") {
  CHECK_THAT(
      refusal(with(torchrun_variables(), {{"LOCAL_RANK", "2"}})),
      StartsWith(
          "torchrun gives this process local rank 2 among 2 processes of its host, in a world of 6 | "));
  CHECK_THAT(refusal(with(open_mpi_variables(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}})),
             ContainsSubstring("Open MPI gives this process local rank 1 among 1 processes"));
  CHECK_THAT(refusal(with(mpich_variables(), {{"MPI_LOCALNRANKS", "1"}})),
             ContainsSubstring("MPICH gives this process local rank 1 among 1 processes"));
  for (const auto* size : {"7", "0"}) {
    CHECK_THAT(refusal(with(torchrun_variables(), {{"LOCAL_WORLD_SIZE", size}})),
               no_number("LOCAL_WORLD_SIZE", size, 1, 6));
  }
  for (const auto* rank : {"6", "a"}) {
    CHECK_THAT(refusal(with(torchrun_variables(), {{"LOCAL_RANK", rank}})),
               no_number("LOCAL_RANK", rank, 0, 5));
  }
}

TEST_CASE("a master's port that is none is refused, and the hint says what to do") {
  for (const std::string text : {"0", "65536", "-1", "http", "29500 ", "29500x"}) {
    const Variables port{{"MASTER_PORT", text}}, both{{"MASTER_ADDR", "a"}, {"MASTER_PORT", text}};
    for (const auto& variables :
         {with(torchrun_variables(), port), with(open_mpi_variables(), port), with(mpich_variables(), both),
          with(slurm_variables(), port), with(slurm_variables(), both)}) {
      CHECK_THAT(refusal(variables), no_number("MASTER_PORT", text, 1, 65535) &&
                                         ContainsSubstring("give all processes the same port"));
    }
  }
  CHECK(world_in(with(torchrun_variables(), {{"MASTER_PORT", "1"}})).master_port == 1);
  CHECK(world_in(with(torchrun_variables(), {{"MASTER_PORT", "65535"}})).master_port == 65535);
}

TEST_CASE("an empty variable that is no rank and no size counts as not set") {
  const auto port = with(torchrun_variables(), {{"MASTER_PORT", ""}});
  CHECK(world_in(port) == world_in(without(torchrun_variables(), {"MASTER_PORT"})));
  const auto local = with(torchrun_variables(), {{"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", ""}});
  CHECK(world_in(local).processes_on_host == 0);
  const Variables no_master{{"MASTER_ADDR", ""}, {"MASTER_PORT", ""}};
  CHECK(world_in(with(open_mpi_variables(), no_master)) == world_in(open_mpi_variables()));
  CHECK(world_in(with(slurm_variables(), no_master)) == world_in(slurm_variables()));
  CHECK(world_in(with(slurm_variables(), {{"SLURM_STEP_ID", ""}})) == World{});
  // Several processes would train alone if these counted as not set, too.
  CHECK_FALSE(refusal({{"RANK", ""}, {"WORLD_SIZE", ""}}).empty());
}

TEST_CASE("the port of a job is the same for its processes, is in its range, and differs between jobs") {
  for (int process = 0; process < 3; ++process) {
    const auto text = std::to_string(process);
    const Variables place{{"OMPI_COMM_WORLD_RANK", text}, {"OMPI_COMM_WORLD_LOCAL_RANK", text}};
    CHECK(world_in(with(open_mpi_variables(), place)).master_port == 35050);
  }
  CHECK(port_of("310116354") == 37907);
  std::set<uint16_t> ports;
  for (int job = 0; job < 20'000; ++job) ports.insert(port_of(std::to_string(job)));
  CHECK(*ports.begin() == 29500);
  CHECK(*ports.rbegin() == 39499);
}
