// The place that a user gives by hand.
#include <lockstep/tests/catch.h>

#include <lockstep/tests/parallel/world/environments.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr const char* kTogether =
    " | give the rank, the world size and the master together, or use a launcher";

World by_master(const std::string& master) {
  return world_in({}, {.rank = 0, .world_size = 2, .master = master});
}

std::string master_refusal(const std::string& master) {
  return refusal_by([&] { by_master(master); });
}

}  // namespace

TEST_CASE("rank, world size and master make a world, whose local processes are counted later") {
  const World expected{.process = 1,
                       .processes = 2,
                       .local_process = 0,
                       .local_processes = 0,
                       .master_host = "10.0.0.1",
                       .master_port = 29600};
  CHECK(world_in({}, hand_flags()) == expected);
  CHECK(world_in({}, {.rank = 0, .world_size = 1, .master = "a:1"}) == World{});
}

TEST_CASE("one or two of rank, world size and master are refused with what is missing") {
  CHECK(refusal({}, {.rank = 0}) == std::string("rank given, but world size and master missing") + kTogether);
  CHECK(refusal({}, {.world_size = 2}) ==
        std::string("world size given, but rank and master missing") + kTogether);
  CHECK(refusal({}, {.master = "a:1"}) ==
        std::string("master given, but rank and world size missing") + kTogether);
  CHECK(refusal({}, {.rank = 0, .world_size = 2}) ==
        std::string("rank and world size given, but master missing") + kTogether);
  CHECK(refusal({}, {.rank = 0, .master = "a:1"}) ==
        std::string("rank and master given, but world size missing") + kTogether);
  CHECK(refusal({}, {.world_size = 2, .master = "a:1"}) ==
        std::string("world size and master given, but rank missing") + kTogether);
  // A launcher's variables do not fill the gap, and a batch script's are no launcher's.
  CHECK_FALSE(refusal(torchrun_variables(), {.rank = 0}).empty());
  CHECK_FALSE(refusal(without(slurm_variables(), "SLURM_STEP_ID"), {.master = "a:1"}).empty());
}

TEST_CASE("flags go before any launcher's variables, complete or not") {
  const auto by_hand = world_in({}, hand_flags());
  for (const auto& variables :
       {torchrun_variables(), open_mpi_variables(), mpich_variables(), slurm_variables()}) {
    CHECK(world_in(variables, hand_flags()) == by_hand);
  }
  CHECK(world_in({{"RANK", "x"}}, hand_flags()) == by_hand);
}

TEST_CASE("flags outside their limits are refused") {
  CHECK(refusal({}, {.rank = 2, .world_size = 2, .master = "a:1"}) ==
        "the rank is 2, but the world size is 2 | ranks count from 0 to 1");
  CHECK(refusal({}, {.rank = 1, .world_size = 1, .master = "a:1"}) ==
        "the rank is 1, but the world size is 1 | ranks count from 0 to 0");
  // A launcher's variables, right or wrong, are not what says it.
  CHECK(refusal(torchrun_variables(), {.rank = 2, .world_size = 2, .master = "a:1"}) ==
        "the rank is 2, but the world size is 2 | ranks count from 0 to 1");
  CHECK(refusal({}, {.rank = -1, .world_size = 2, .master = "a:1"}) ==
        "the rank is '-1', but it must be a number from 0 to 1048576 | ranks count from 0");
  CHECK(refusal({}, {.rank = 0, .world_size = 0, .master = "a:1"}) ==
        "the world size is '0', but it must be a number from 1 to 1048576 | it is the number of processes");
  CHECK_FALSE(refusal({}, {.rank = 0, .world_size = 1048577, .master = "a:1"}).empty());
}

TEST_CASE("a master is HOST:PORT, and an IPv6 address stands in brackets") {
  const auto name = by_master("node7.example:65535");
  CHECK(name.master_host == "node7.example");
  CHECK(name.master_port == 65535);
  const auto ipv6 = by_master("[fe80::1%eth0]:29500");
  CHECK(ipv6.master_host == "fe80::1%eth0");
  CHECK(ipv6.master_port == 29500);
  CHECK(by_master("[::]:1").master_host == "::");
}

TEST_CASE("a malformed master is refused") {
  for (const std::string text : {"", ":", "a", "29500", ":29500", "[]:1", "[:1", "]:1", "[::1]", "::1:29500",
                                 "http://a:1", "[a:1", "a]:1", "[[::1]]:1", "[::1]x:1", " a:1", "[ ]:1"}) {
    INFO("'" << text << "'");
    CHECK(master_refusal(text) ==
          "the master is '" + text +
              "', but it must be HOST:PORT | give HOST:PORT, such as 127.0.0.1:29500 or [::1]:29500");
  }
  for (const std::string port : {"", "0", "65536", "-1", "x", "1x", " 1", "99999999999"}) {
    INFO("'" << port << "'");
    CHECK(master_refusal("a:" + port) == "the master's port is '" + port +
                                             "', but it must be a number from 1 to 65535 | give HOST:PORT, "
                                             "such as 127.0.0.1:29500 or [::1]:29500");
  }
  // Also beside a launcher, in a world of one.
  CHECK_FALSE(refusal({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, {.master = "a"}).empty());
}

TEST_CASE("the master alone overrides a launcher's, and process 0 serves it") {
  auto expected = world_in(torchrun_variables());
  expected.master_host = "::1";
  expected.master_port = 29600;
  expected.store_runs = false;  // the agent's store is elsewhere
  CHECK(world_in(torchrun_variables(), {.master = "[::1]:29600"}) == expected);
  CHECK_FALSE(world_in(torchrun_variables(), {.master = "node7:29512"}).store_runs);
  CHECK_FALSE(world_in(torchrun_variables(), {.master = "node8:29511"}).store_runs);
  CHECK(world_in(torchrun_variables(), {.master = "node7:29511"}) == world_in(torchrun_variables()));

  for (const auto& variables : {open_mpi_variables(), mpich_variables(), slurm_variables()}) {
    expected = world_in(variables);
    expected.master_host = "a";
    expected.master_port = 29600;
    CHECK(world_in(variables, {.master = "a:29600"}) == expected);
    // The launcher's own may be anything then.
    CHECK(world_in(with(variables, {{"MASTER_ADDR", "b"}, {"MASTER_PORT", "x"}}), {.master = "a:29600"}) ==
          expected);
  }
}

TEST_CASE("the master is what the hints of launchers without one ask for") {
  const GivenWorld flags{.master = "a:29600"};
  CHECK(world_in(without(torchrun_variables(), "MASTER_ADDR"), flags).master_host == "a");
  CHECK(world_in(with(mpich_variables(), {{"MPI_LOCALNRANKS", "1"}, {"MPI_LOCALRANKID", "0"}}), flags)
            .master_host == "a");
  CHECK(world_in(slurm_variables(), flags, none_resolve).master_host == "a");
}
