#include <lockstep/parallel/world/world.h>
#include <lockstep/tests/catch.h>
#include <stdlib.h>
#include <sys/utsname.h>

#include <set>

#include <lockstep/tests/parallel/world/environments.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string no_number(const std::string& name, const std::string& text, int low, int high) {
  return name + " is '" + text + "', but it must be a number from " + std::to_string(low) + " to " +
         std::to_string(high) + " | " +
         (name == "MASTER_PORT" ? "give all processes the same port"
                                : "leave the launcher's variables as it sets them");
}

uint16_t port_of(const std::string& job) {
  return world_in(with(open_mpi_variables(), {{"OMPI_MCA_ess_base_jobid", job}})).master_port;
}

}  // namespace

TEST_CASE("without a launcher and flags a process is alone") {
  CHECK(world_in({}) == World{});
  CHECK(World{}.process == 0);
  CHECK(World{}.processes == 1);
  CHECK(World{}.local_processes == 1);
  CHECK(World{}.master_host.empty());
  CHECK(World{}.launcher.empty());
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

TEST_CASE("a rank that is none is refused with the text and the limits") {
  for (const std::string text : {"-1", "", "x", "1x", "1 ", " 1", "+1", "1.0", "0x1", "99999999999"}) {
    INFO("'" << text << "'");
    CHECK(refusal(with(torchrun_variables(), {{"RANK", text}})) == no_number("RANK", text, 0, 1048576));
    CHECK(refusal(with(open_mpi_variables(), {{"OMPI_COMM_WORLD_RANK", text}})) ==
          no_number("OMPI_COMM_WORLD_RANK", text, 0, 1048576));
    CHECK(refusal(with(mpich_variables(), {{"PMI_RANK", text}})) == no_number("PMI_RANK", text, 0, 1048576));
    CHECK(refusal(with(slurm_variables(), {{"SLURM_PROCID", text}})) ==
          no_number("SLURM_PROCID", text, 0, 1048576));
  }
}

TEST_CASE("a world size that is none is refused with the text and the limits") {
  for (const std::string text : {"0", "-1", "", "x", "2x", "1048577", "99999999999"}) {
    INFO("'" << text << "'");
    CHECK(refusal(with(torchrun_variables(), {{"WORLD_SIZE", text}})) ==
          no_number("WORLD_SIZE", text, 1, 1048576));
    CHECK(refusal(with(mpich_variables(), {{"PMI_SIZE", text}})) == no_number("PMI_SIZE", text, 1, 1048576));
  }
}

TEST_CASE("a rank outside the world is refused") {
  CHECK(refusal(with(torchrun_variables(), {{"RANK", "6"}})) ==
        "torchrun's RANK is 6, but WORLD_SIZE is 6 | ranks count from 0 to 5");
  const Variables launched{{"RANK", "7"}, {"LOCKSTEP_RUN_LAUNCHER", "lockstep"}};
  CHECK(refusal(with(torchrun_variables(), launched)) ==
        "lockstep launch's RANK is 7, but WORLD_SIZE is 6 | ranks count from 0 to 5");
  CHECK(refusal(with(open_mpi_variables(), {{"OMPI_COMM_WORLD_RANK", "1000"}})) ==
        "Open MPI's OMPI_COMM_WORLD_RANK is 1000, but OMPI_COMM_WORLD_SIZE is 3 | ranks count from 0 to 2");
  CHECK(refusal(with(mpich_variables(), {{"PMI_RANK", "2"}})) ==
        "MPICH's PMI_RANK is 2, but PMI_SIZE is 2 | ranks count from 0 to 1");
  CHECK(refusal(with(slurm_variables(), {{"SLURM_PROCID", "4"}})) ==
        "SLURM's SLURM_PROCID is 4, but SLURM_STEP_NUM_TASKS is 4 | ranks count from 0 to 3");
  // With the master by hand the place is the launcher's still.
  CHECK_THAT(refusal(with(torchrun_variables(), {{"RANK", "6"}}), {.master = "a:1"}),
             ContainsSubstring("torchrun's RANK is 6"));
  // Also in a world of one.
  CHECK_FALSE(refusal({{"RANK", "1"}, {"WORLD_SIZE", "1"}}).empty());
}

TEST_CASE("local numbers that contradict each other or the world are refused") {
  CHECK(refusal(with(torchrun_variables(), {{"LOCAL_RANK", "2"}})) ==
        "torchrun gives this process local rank 2 among 2 processes of its host, in a world of 6 | leave the "
        "launcher's variables as it sets them");
  CHECK(refusal(with(torchrun_variables(), {{"LOCAL_WORLD_SIZE", "7"}})) ==
        no_number("LOCAL_WORLD_SIZE", "7", 1, 6));
  CHECK(refusal(with(torchrun_variables(), {{"LOCAL_RANK", "6"}})) == no_number("LOCAL_RANK", "6", 0, 5));
  CHECK(refusal(with(torchrun_variables(), {{"LOCAL_RANK", "a"}})) == no_number("LOCAL_RANK", "a", 0, 5));
  CHECK(refusal(with(torchrun_variables(), {{"LOCAL_WORLD_SIZE", "0"}})) ==
        no_number("LOCAL_WORLD_SIZE", "0", 1, 6));
  CHECK_THAT(refusal(with(open_mpi_variables(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}})),
             ContainsSubstring("Open MPI gives this process local rank 1 among 1 processes"));
  CHECK_THAT(refusal(with(mpich_variables(), {{"MPI_LOCALNRANKS", "1"}})),
             ContainsSubstring("MPICH gives this process local rank 1 among 1 processes"));
}

TEST_CASE("a master's port that is none is refused") {
  for (const std::string text : {"0", "65536", "-1", "http", "29500 ", "29500x"}) {
    INFO("'" << text << "'");
    const Variables port{{"MASTER_PORT", text}}, both{{"MASTER_ADDR", "a"}, {"MASTER_PORT", text}};
    const auto expected = no_number("MASTER_PORT", text, 1, 65535);
    CHECK(refusal(with(torchrun_variables(), port)) == expected);
    CHECK(refusal(with(open_mpi_variables(), port)) == expected);
    CHECK(refusal(with(mpich_variables(), both)) == expected);
    CHECK(refusal(with(slurm_variables(), port)) == expected);
    CHECK(refusal(with(slurm_variables(), both)) == expected);
  }
  CHECK(world_in(with(torchrun_variables(), {{"MASTER_PORT", "1"}})).master_port == 1);
  CHECK(world_in(with(torchrun_variables(), {{"MASTER_PORT", "65535"}})).master_port == 65535);
}

TEST_CASE("an empty variable that is no rank and no size counts as not set") {
  const auto port = with(torchrun_variables(), {{"MASTER_PORT", ""}});
  CHECK(world_in(port) == world_in(without(torchrun_variables(), "MASTER_PORT")));
  const auto local = with(torchrun_variables(), {{"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", ""}});
  CHECK(world_in(local).local_processes == 0);
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
