// Processes find each other and exchange texts.
#include <lockstep/tests/catch.h>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/collectives/gloo/addresses.h>
#include <lockstep/parallel/collectives/gloo/store_server.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/tests/parallel/collectives/collectives.h>
#include <lockstep/tests/parallel/collectives/gloo/joined.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

const JoinedTask kNothing = [](int, ProcessGroup&) {};

// Different for each process and round: empty, binary, and longer than a packet.
std::string text_of(int process, int round) {
  const auto size = static_cast<size_t>(round * round * round * (process + 1));
  std::string text(size, static_cast<char>('a' + process));
  if (round == 3) text += std::string("\0\n/", 3);
  return text;
}

}  // namespace

TEST_CASE("a process alone joins nobody") { CHECK(join_process_group(World{}) == nullptr); }

TEST_CASE("processes of one host divide the cores, unless they are asked not to") {
  using Cores = std::vector<std::vector<int>>;
  const auto all = allowed_cores();
  const auto found = [&](bool divide) {
    Cores cores(2);
    auto options = within(60'000);
    options.divide_cores = divide;
    run_joined(
        2, [&](int process, ProcessGroup&) { cores[static_cast<size_t>(process)] = allowed_cores(); },
        options);
    return cores;
  };
  const std::vector<size_t> replicas = {1, 1};
  CHECK(found(true) == Cores{share_of_cores(all, replicas, 0), share_of_cores(all, replicas, 1)});
  CHECK(found(false) == Cores{all, all});
  CHECK(allowed_cores() == all);  // only the threads that joined are pinned
}

TEST_CASE("every process gets the texts of all, again and again") {
  for (const int count : {2, 3}) {
    std::vector<std::vector<std::vector<std::string>>> seen(static_cast<size_t>(count));
    run_joined(count, [&](int process, ProcessGroup& group) {
      for (int round = 0; round < 30; ++round) {
        seen[static_cast<size_t>(process)].push_back(group.gather(text_of(process, round)));
      }
    });
    for (int round = 0; round < 30; ++round) {
      std::vector<std::string> expected;
      for (int process = 0; process < count; ++process) expected.push_back(text_of(process, round));
      for (const auto& texts : seen) CHECK(texts[static_cast<size_t>(round)] == expected);
    }
  }
}

TEST_CASE("a process may leave as soon as it has the texts of all, process 0 with the store, too") {
  for (int repeat = 0; repeat < 10; ++repeat) {
    const auto errors = run_worlds(worlds_of(3), [](int process, ProcessGroup& group) {
      group.gather(std::to_string(process));
      throw Leaves();
    });
    for (const auto& error : errors) CHECK(message_of<PeerError>(error) == "it left");
  }
}

TEST_CASE("the local processes are counted if nobody has said them") {
  auto worlds = worlds_of(2);
  for (auto& world : worlds) {
    world.process_on_host = 0;
    world.processes_on_host = 0;
  }
  std::vector<World> joined(2);
  const auto errors = run_worlds(worlds, [&](int process, ProcessGroup& group) {
    joined[static_cast<size_t>(process)] = group.world();
  });
  for (size_t process = 0; process < 2; ++process) {
    CHECK(message_of<Error>(errors[process]) == "no error");
    CHECK(joined[process].process_on_host == static_cast<int>(process));
    CHECK(joined[process].processes_on_host == 2);
    CHECK(joined[process].process == static_cast<int>(process));
  }
}

TEST_CASE("processes meet in a store that their launcher serves, and each run has its own keys") {
  const StoreServer server;
  for (const auto* run : {"first", "second"}) {
    auto worlds = worlds_of(2);
    for (auto& world : worlds) {
      world.master_host = server.host();
      world.master_port = server.port();
      world.store_runs = true;
      world.run = run;
    }
    std::vector<std::vector<std::string>> texts(2);
    const auto errors = run_worlds(worlds, [&](int process, ProcessGroup& group) {
      texts[static_cast<size_t>(process)] = group.gather(run + std::to_string(process));
    });
    for (const auto& error : errors) CHECK(message_of<Error>(error) == "no error");
    for (const auto& all : texts) {
      CHECK(all == std::vector<std::string>{run + std::string("0"), run + std::string("1")});
    }
  }
}

TEST_CASE("the first processes can be a world of their own, again and again, and the whole one stays") {
  std::vector<std::vector<std::string>> parts(4), wholes(4);
  std::vector<float> sums(4);
  run_joined(4, [&](int process, ProcessGroup& group) {
    const auto i = static_cast<size_t>(process);
    for (const int count : {2, 3, 2}) {
      if (process >= count) continue;
      const auto part = group.subgroup(count);
      for (const auto& text : part->gather(text_of(process, count))) parts[i].push_back(text);
      const auto channel = open_channel(*part);
      auto one = torch::ones({1});
      channel->allreduce_sum(one).get();
      sums[i] += one.item<float>();
      if (part->world().process != process || part->world().processes != count) sums[i] = -1;
      part->gather("summed");
    }
    wholes[i] = group.gather(text_of(process, 0));
  });
  const auto expected = [](int process, const std::vector<int>& counts) {
    std::vector<std::string> texts;
    for (const int count : counts) {
      for (int other = 0; other < count && process < count; ++other) texts.push_back(text_of(other, count));
    }
    return texts;
  };
  for (int process = 0; process < 4; ++process) {
    const auto i = static_cast<size_t>(process);
    CHECK(parts[i] == expected(process, {2, 3, 2}));
    CHECK(wholes[i].size() == 4);
  }
  CHECK(sums == std::vector<float>({7, 7, 3, 0}));
}

TEST_CASE("on one host all listeners are on the loopback interface") {
  std::set<std::string> ipv4, ipv6;
  run_joined(2, [&](int process, ProcessGroup& group) {
    const auto channels = open_channels(group, 2);
    group.gather("all listen");
    if (process == 0) {
      ipv4 = listening_addresses("tcp");
      ipv6 = listening_addresses("tcp6");
    }
    group.gather("seen");
  });
  CHECK(ipv4 == std::set<std::string>{"0100007F"});
  CHECK(ipv6.empty());
}

TEST_CASE("processes that do not come are named") {
  auto worlds = worlds_of(3);
  worlds.resize(1);
  const auto alone = run_worlds(worlds, kNothing, within(500));
  const auto named = [&](const std::string& missing) {
    return missing + " did not come to " + host_and_port("127.0.0.1", worlds[0].master_port) +
           " within 0.5 s";
  };
  CHECK(message_of<DeviceError>(alone[0]) == named("processes 1 and 2 of 3"));

  std::vector<std::exception_ptr> two;
  do {  // again if a busy machine or a slow name server keeps process 0 or 2 from coming
    worlds = worlds_of(3);
    worlds.erase(worlds.begin() + 1);
    two = run_worlds(worlds, kNothing, within(500));
  } while (message_of<DeviceError>(two[0]) == named("processes 1 and 2 of 3") ||
           message_of<DeviceError>(two[1]) == named("processes 0 and 1 of 3"));
  CHECK(message_of<DeviceError>(two[0]) == named("process 1 of 3"));
  // Whoever gives up first may take the store with it.
  CHECK_THAT(message_of<DeviceError>(two[1]),
             ContainsSubstring(named("process 1 of 3")) || ContainsSubstring("the store at"));
}

TEST_CASE(
    "a place that is claimed twice, and processes that count different worlds, are refused in all "
    "processes") {
  auto twice = worlds_of(3), different = worlds_of(3);
  twice.back().process = 1;
  different[0].processes = 2;
  different.erase(different.begin() + 1);  // 0 of 2 and 2 of 3 are left
  for (const auto& [worlds, words] :
       {std::pair{twice, "process 1 of 3 was claimed twice: by pid "}, {different, "counts"}}) {
    const auto errors = run_worlds(worlds, kNothing);
    for (const auto& error : errors) {
      CHECK_THAT(message_of<DeviceError>(error), ContainsSubstring(words));
      CHECK(message_of<DeviceError>(error) == message_of<DeviceError>(errors[0]));
    }
    if (worlds.size() == 2) {
      CHECK_THAT(message_of<DeviceError>(errors[0]), ContainsSubstring("2") && ContainsSubstring("3"));
    }
  }
}

TEST_CASE("a port in use and a store that nobody serves are named with host and port") {
  const auto listener = listen_on("127.0.0.1", 0);
  const auto port = port_of(listener);
  const auto in_use =
      message_of<DeviceError>([&] { join_process_group(loopback_world(0, 2, port), within(1000)); });
  CHECK_THAT(in_use, ContainsSubstring(host_and_port("127.0.0.1", port)));
  CHECK_THAT(in_use, ContainsSubstring("Address already in use"));

  const auto nobody = free_loopback_port();
  CHECK_THAT(message_of<DeviceError>([&] { join_process_group(loopback_world(1, 2, nobody), within(300)); }),
             ContainsSubstring("nobody answers at " + host_and_port("127.0.0.1", nobody) + " within 0.3 s"));
}

TEST_CASE("a process that does not answer is named") {
  const auto error = run_beside_silence([](Channel&, ProcessGroup& group) { group.gather("here"); });
  CHECK(message_of<PeerError>(error) == "process 1 of 2 did not answer within 1 s");
}

TEST_CASE("processes that lose the store say where it was") {
  const auto worlds = worlds_of(2);
  const auto errors = run_worlds(worlds, [](int process, ProcessGroup& group) {
    group.gather("all have joined");  // who loses the store while joining ends with another type of error
    if (process == 0) throw Leaves();
    group.gather("here");
  });
  CHECK_THAT(
      message_of<PeerError>(errors[1]),
      ContainsSubstring("lost the store at " + host_and_port("127.0.0.1", worlds[0].master_port) + ": "));
  CHECK_THAT(message_of<PeerError>(errors[1]), !ContainsSubstring("raised") && !ContainsSubstring("\n"));
}

TEST_CASE("processes that open different numbers of channels are told so") {
  const auto errors =
      run_worlds(worlds_of(2), [](int process, ProcessGroup& group) { open_channels(group, process + 1); });
  for (const auto& error : errors) {
    CHECK(message_of<UsageError>(error) ==
          "the numbers of channels differ: process 1 has 2 where process 0 has 1");
  }
}

TEST_CASE("a process that cannot listen ends the waiting of those that connect to it") {
  ask_name_servers_before();
  std::string seen;  // by process 0
  Calls calls;
  for (const auto& world : worlds_of(2)) {
    calls.push_back([&seen, world] {
      auto options = within(600'000);
      if (world.process == 1) options.listen = "203.0.113.9";  // no interface has it
      const auto group = join_process_group(world, options);
      try {
        open_channels(*group, 1);
      } catch (const Error& error) {
        if (world.process == 0) seen = error.message();
        std::rethrow_exception(group->explain(std::current_exception(), {}));
      }
    });
  }
  const auto errors = call_side_by_side(calls);
  CHECK_THAT(message_of<DeviceError>(errors[1]), StartsWith("process 1 cannot listen on 203.0.113.9: "));
  CHECK(seen == "another process cannot go on");
  CHECK_THAT(message_of<PeerError>(errors[0]),
             StartsWith("process 1 failed first: process 1 cannot listen on 203.0.113.9: "));
}

TEST_CASE("a process that fails ends what others wait for in a part of the world") {
  std::promise<void> ended;
  std::string seen, verdict;  // of process 0
  run_worlds(
      worlds_of(3),
      [&](int process, ProcessGroup& group) {
        const auto part = process < 2 ? group.subgroup(2) : nullptr;
        if (process == 1) {
          const auto channels = open_channels(*part, 1);
          group.explain(std::make_exception_ptr(OutputError("full")), {});
          ended.get_future().wait_for(std::chrono::seconds(60));  // its sockets say nothing
          throw Leaves();
        }
        if (process == 2) throw Leaves();
        const auto channels = open_channels(*part, 1);
        auto one = torch::ones({1});
        try {
          channels.front()->allreduce_sum(one).get();
        } catch (const Error& error) {
          seen = error.message();
          verdict = message_of<PeerError>(part->explain(std::current_exception(), {}));
        }
        ended.set_value();
        throw Leaves();
      },
      within(600'000));
  CHECK(seen == "another process cannot go on");
  CHECK(verdict == "process 1 failed first: full");
}

namespace {

struct Meeting {
  std::string first_master, second_master;  // as process 0 and process 1 are told
  int processes_on_host = 0;                // 0: nobody has said how many
  std::string launcher = "torchrun";
  JoinOptions options = within(60'000);
};

bool meet(const Meeting& meeting) {
  auto worlds = worlds_of(2);
  for (auto& world : worlds) {
    world.process_on_host = 0;
    world.processes_on_host = meeting.processes_on_host;
    world.launcher = meeting.launcher;
    world.master_host = world.process == 0 ? meeting.first_master : meeting.second_master;
  }
  std::vector<std::vector<std::string>> texts(2);
  const auto errors = run_worlds(
      worlds,
      [&](int process, ProcessGroup& group) {
        texts[static_cast<size_t>(process)] = group.subgroup(2)->gather(std::to_string(process));
      },
      meeting.options);
  return !errors[0] && !errors[1] && texts == std::vector(2, std::vector<std::string>{"0", "1"});
}

JoinOptions listening_on(const std::string& address, int milliseconds = 60'000) {
  auto options = within(milliseconds);
  options.listen = address;
  return options;
}

// Loopback's own listeners, at 127.0.0.1, are not reached here.
constexpr const char* kElsewhere = "127.0.0.2";

}  // namespace

TEST_CASE("which masters processes reach, as each is told and wherever its channels listen") {
  const auto quick = within(300), listens = listening_on("127.0.0.3");
  std::vector<std::pair<bool, Meeting>> cases = {
      // Kubernetes' operators tell process 0 that it is localhost, and the others its address.
      {true, {"localhost", kElsewhere, 1}},
      {true, {"localhost", kElsewhere, 0}},
      {false, {"localhost", kElsewhere, 2, "torchrun", quick}},  // all processes are on its host
      {false, {"localhost", kElsewhere, 0, "", quick}},          // a caller who says so means it
      {true, {"localhost", "localhost", 1, "torchrun", listens}},
      {true, {"localhost", kElsewhere, 1, "torchrun", listens}},
      {true, {"127.0.0.1", "127.0.0.1", 1, "torchrun", listens}},
      {true, {"127.0.0.1", "127.0.0.1", 0, "", listens}}};
  // An address of loopback is not reached from elsewhere, whoever has given it.
  for (const auto* master : {"127.0.0.1", "127.0.0.9", "::1"}) {
    cases.push_back({false, {master, kElsewhere, 1, "torchrun", quick}});
    cases.push_back({false, {master, kElsewhere, 0, "torchrun", quick}});
    cases.push_back({false, {master, kElsewhere, 0, "torchrun", listening_on("127.0.0.3", 300)}});
  }
  for (const auto& [reached, meeting] : cases) {
    INFO(meeting.first_master << " and " << meeting.second_master << ", " << meeting.processes_on_host
                              << " local processes, listening on '" << meeting.options.listen << "'");
    CHECK(meet(meeting) == reached);
  }
}

TEST_CASE("GLOO_SOCKET_IFNAME names the interface for channels, and an unknown one is refused at once") {
  const auto sum_with = [](const char* interface, JoinOptions options = {}) {
    ::setenv("GLOO_SOCKET_IFNAME", interface, 1);
    Tensors sums(2);
    auto errors = run_worlds(
        worlds_of(2),
        [&](int process, ProcessGroup& group) {
          sums[static_cast<size_t>(process)] = torch::full({3}, process + 1);
          open_channel(group)->allreduce_sum(sums[static_cast<size_t>(process)]).get();
          group.gather("done");
        },
        options);
    ::unsetenv("GLOO_SOCKET_IFNAME");
    if (!errors[0] && !errors[1]) CHECK(all_are(torch::full({3}, 3), sums));
    return message_of<UsageError>(errors[1]);
  };
  CHECK(sum_with("lo") == "no error");
  CHECK(sum_with("") == "no error");
  CHECK_THAT(sum_with("ib9"), ContainsSubstring("GLOO_SOCKET_IFNAME is 'ib9'"));
  CHECK(sum_with("ib9", {.listen = "127.0.0.1"}) == "no error");
}
