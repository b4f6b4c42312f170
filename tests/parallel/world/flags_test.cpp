// The place that a user gives by hand.
#include <lockstep/tests/catch.h>

#include <lockstep/tests/parallel/world/environments.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

World by_master(const std::string& master) {
  return world_in({}, {.rank = 0, .world_size = 2, .master = master});
}

}  // namespace

TEST_CASE("rank, world size and master make a world, whose local processes are counted later") {
  CHECK(text_of(world_in({}, hand_flags())) ==
        "1/2, on its host 0/0, at 10.0.0.1:29600, run , launch , restart 0/0, by ");
  CHECK(world_in({}, {.rank = 0, .world_size = 1, .master = "a:1"}) == World{});
}

TEST_CASE("one or two of rank, world size and master are refused with what is missing") {
  const std::pair<GivenWorld, const char*> cases[] = {
      {{.rank = 0}, "rank given, but world size and master missing"},
      {{.world_size = 2}, "world size given, but rank and master missing"},
      {{.master = "a:1"}, "master given, but rank and world size missing"},
      {{.rank = 0, .world_size = 2}, "rank and world size given, but master missing"},
      {{.rank = 0, .master = "a:1"}, "rank and master given, but world size missing"},
      {{.world_size = 2, .master = "a:1"}, "world size and master given, but rank missing"}};
  for (const auto& [flags, words] : cases) {
    CHECK_THAT(refusal({}, flags), StartsWith(words) && ContainsSubstring(" | give the rank, "));
  }
  // A launcher's variables do not fill the gap, and a batch script's are no launcher's.
  CHECK_FALSE(refusal(torchrun_variables(), {.rank = 0}).empty());
  CHECK_FALSE(refusal(without(slurm_variables(), {"SLURM_STEP_ID"}), {.master = "a:1"}).empty());
}

TEST_CASE("flags go before any launcher's variables, complete or not") {
  const auto by_hand = world_in({}, hand_flags());
  for (const auto& variables : {torchrun_variables(), open_mpi_variables(), mpich_variables(),
                                slurm_variables(), Variables{{"RANK", "x"}}}) {
    CHECK(world_in(variables, hand_flags()) == by_hand);
  }
}

TEST_CASE("flags outside their limits are refused with the value and the limits") {
  const std::tuple<int, int, const char*> cases[] = {
      {2, 2, "rank is 2, but the world size is 2 | ranks count from 0 to 1"},
      {1, 1, "rank is 1, but the world size is 1 | ranks count from 0 to 0"},
      {-1, 2, "rank is '-1', but it must be a number from 0 to 1048576"},
      {0, 0, "world size is '0', but it must be a number from 1 to 1048576"},
      {0, 1048577, "world size is '1048577'"}};
  for (const auto& [rank, size, words] : cases) {
    const GivenWorld flags{.rank = rank, .world_size = size, .master = "a:1"};
    CHECK_THAT(refusal({}, flags), StartsWith(std::string("the ") + words));
    CHECK(refusal(torchrun_variables(), flags) == refusal({}, flags));  // a launcher is not what says it
  }
}

TEST_CASE("a master is HOST:PORT, and an IPv6 address stands in brackets") {
  const std::tuple<const char*, const char*, int> cases[] = {{"node7.example:65535", "node7.example", 65535},
                                                             {"[fe80::1%eth0]:29500", "fe80::1%eth0", 29500},
                                                             {"[::]:1", "::", 1}};
  for (const auto& [text, host, port] : cases) {
    CHECK(by_master(text).master_host == host);
    CHECK(by_master(text).master_port == port);
  }
}

TEST_CASE("a malformed master is refused") {
  const auto check = [](const std::string& master, const std::string& words) {
    CHECK_THAT(refusal_and_hint([&] { by_master(master); }),
               StartsWith("the master" + words) && ContainsSubstring(" | give HOST:PORT, such as 127.0.0.1"));
  };
  for (const std::string text : {"", ":", "a", "29500", ":29500", "[]:1", "[:1", "]:1", "[::1]", "::1:29500",
                                 "http://a:1", "[a:1", "a]:1", "[[::1]]:1", "[::1]x:1", " a:1", "[ ]:1"}) {
    check(text, " is '" + text + "', but it must be HOST:PORT");
  }
  for (const std::string port : {"", "0", "65536", "-1", "x", "1x", " 1", "99999999999"}) {
    check("a:" + port, "'s port is '" + port + "', but it must be a number from 1 to 65535");
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

  const GivenWorld flags{.master = "a:29600"};
  for (const auto& variables : {open_mpi_variables(), mpich_variables(), slurm_variables()}) {
    expected = world_in(variables);
    expected.master_host = "a";
    expected.master_port = 29600;
    CHECK(world_in(variables, flags) == expected);
    // The launcher's own may be anything then.
    CHECK(world_in(with(variables, {{"MASTER_ADDR", "b"}, {"MASTER_PORT", "x"}}), flags) == expected);
  }
}

TEST_CASE("the master is what the hints of launchers without one ask for") {
  for (const auto& variables :
       {without(torchrun_variables(), {"MASTER_ADDR"}), mpich_on_two_hosts(), slurm_variables()}) {
    CHECK(world_in(variables, {.master = "a:29600"}, none_resolve).master_host == "a");
  }
}
