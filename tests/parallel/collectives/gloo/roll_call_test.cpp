#include <lockstep/parallel/collectives/gloo/roll_call.h>
#include <lockstep/tests/catch.h>

#include <lockstep/tests/parallel/collectives/gloo/joined.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

Presence on(const std::string& machine, const std::string& address = "10.0.0.1") {
  return {.host = "node", .machine = machine, .pid = 1, .address = address};
}

World unknown_local(int process, int processes) {
  return {.process = process,
          .processes = processes,
          .processes_on_host = 0,
          .master_host = "192.0.2.1",
          .master_port = 29500};
}

}  // namespace

TEST_CASE("processes are on one host if all are on the same machine") {
  CHECK(on_one_host({on("a"), on("a"), on("a")}));
  CHECK_FALSE(on_one_host({on("a"), on("a"), on("b")}));
}

TEST_CASE("local processes are counted in order, unless the launcher has said them") {
  const std::vector<Presence> all{on("a"), on("b"), on("a"), on("b"), on("a")};
  const std::vector<int> places{0, 0, 1, 1, 2};
  const std::vector<int> counts{3, 2, 3, 2, 3};
  for (int process = 0; process < 5; ++process) {
    auto world = unknown_local(process, 5);
    count_processes_on_host(world, all);
    CHECK(world.process_on_host == places[static_cast<size_t>(process)]);
    CHECK(world.processes_on_host == counts[static_cast<size_t>(process)]);
  }
  auto known = unknown_local(4, 5);
  known.process_on_host = 1;
  known.processes_on_host = 2;
  count_processes_on_host(known, all);
  CHECK(known.process_on_host == 1);
  CHECK(known.processes_on_host == 2);
}

TEST_CASE("channels listen on the wanted address, on loopback on one host, else towards the others") {
  const auto world = unknown_local(1, 2);
  CHECK(channel_address(world, {on("a"), on("a")}, "eth7") == "eth7");
  CHECK(channel_address(world, {on("a"), on("a")}, "") == "127.0.0.1");
  CHECK(channel_address(world, {on("a"), on("b", "10.0.0.2")}, "") == "10.0.0.2");
  CHECK(channel_address(world, {on("a"), on("b", "10.0.0.2")}, "10.9.9.9") == "10.9.9.9");
}

TEST_CASE("a process that finds no address for other hosts says so") {
  const auto world = unknown_local(1, 2);
  // The store is on its own host, and the other process has no address either.
  const auto message = message_of<DeviceError>([&] {
    channel_address(world, {on("a", "127.0.0.1"), on("b", "127.0.1.1")}, "");
  });
  CHECK_THAT(message, ContainsSubstring("process 1 has no address that other hosts can reach"));
  CHECK_THAT(message, ContainsSubstring("192.0.2.1"));
}

TEST_CASE("a process of another version of lockstep is named, and the roll is refused") {
  const auto world = worlds_of(2).front();
  // It introduces itself by something else than JSON, by other fields, or by fields of other types.
  const auto* const words =
      GENERATE("hello", R"({"host": "node"})", R"({"host": 1, "machine": "a", "pid": "x", "address": ""})");
  const ProcessStore store(world, "", std::chrono::seconds(60));
  store.set("roll/1", words);
  const auto message =
      message_of<DeviceError>([&] { call_roll(store, world, on("a"), std::chrono::seconds(60)); });
  CHECK_THAT(message,
             ContainsSubstring("process 1 is of another version of lockstep") && ContainsSubstring(words));
  CHECK(store.get({"roll/refused"}).front() == message);
}
