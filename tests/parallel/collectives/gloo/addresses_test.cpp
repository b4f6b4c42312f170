#include <lockstep/parallel/collectives/gloo/addresses.h>
#include <lockstep/tests/catch.h>
#include <netinet/in.h>

#include <set>

#include <lockstep/tests/parallel/collectives/gloo/joined.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Longer than the name service takes: nobody is asked.
const std::string kNoHost = std::string(70, 'x') + ".invalid";

}  // namespace

TEST_CASE("a loopback address is one on every host") {
  for (const auto* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) CHECK(is_loopback(host));
  for (const auto* host :
       {"", "10.0.0.1", "128.0.0.1", "127.example.org", "127.0.0.1.example.org", "::2", "node1", "0.0.0.0"}) {
    CHECK_FALSE(is_loopback(host));
  }
}

TEST_CASE("an address is told from a name") {
  for (const auto* host : {"127.0.0.1", "10.0.0.1", "::1", "fe80::1"}) CHECK(is_numeric(host));
  for (const auto* host : {"", "node1", "10.0.0", "10.0.0.1.example.org"}) CHECK_FALSE(is_numeric(host));
}

TEST_CASE("host and port are written so that they can be told apart") {
  CHECK(host_and_port("node1", 29500) == "node1:29500");
  CHECK(host_and_port("127.0.0.1", 1) == "127.0.0.1:1");
  CHECK(host_and_port("::1", 29500) == "[::1]:29500");
}

TEST_CASE("addresses are found, or a problem") {
  const auto found = find_addresses("127.0.0.1", 29500);
  REQUIRE(found.list);
  CHECK(found.problem.empty());
  CHECK(found.list->ai_family == AF_INET);
  CHECK(ntohs(reinterpret_cast<const sockaddr_in*>(found.list->ai_addr)->sin_port) == 29500);
  const auto missing = find_addresses(kNoHost, 29500);
  CHECK_FALSE(missing.list);
  CHECK_FALSE(missing.problem.empty());
}

TEST_CASE("the interface that leads to a host has an address") {
  CHECK(address_towards("127.0.0.1", 29500) == "127.0.0.1");
  CHECK(address_towards("127.9.9.9", 29500) == "127.0.0.1");
  CHECK(address_towards(kNoHost, 29500).empty());
}

TEST_CASE("a listener has its address and port to itself") {
  const auto first = listen_on("127.0.0.1", 0);
  const auto port = port_of(first);
  const auto message = message_of<DeviceError>([&] { listen_on("127.0.0.1", port); });
  CHECK_THAT(message, ContainsSubstring(host_and_port("127.0.0.1", port)));
  CHECK_THAT(message, ContainsSubstring("Address already in use"));
  CHECK_THAT(message_of<DeviceError>([&] { listen_on("", port); }),
             ContainsSubstring("port " + std::to_string(port) + " of all interfaces"));
  CHECK_THAT(message_of<DeviceError>([&] { listen_on("192.0.2.1", 0); }),  // an address for documents
             ContainsSubstring("cannot listen on 192.0.2.1: "));
  CHECK_THAT(message_of<DeviceError>([&] { listen_on(kNoHost, 0); }), ContainsSubstring(kNoHost));
}

TEST_CASE("the kernel chooses a free port, another one for each listener") {
  constexpr int kEach = 20;
  std::set<uint16_t> ports;
  std::vector<Socket> listeners;
  for (const auto* address : {"127.0.0.1", ""}) {  // the second one is IPv6, where the system has that
    for (int i = 0; i < kEach; ++i) {
      listeners.push_back(listen_on(address, 0));
      ports.insert(port_of(listeners.back()));
    }
  }
  CHECK(ports.size() == 2 * kEach);
  CHECK(ports.count(0) == 0);
  CHECK_THAT(message_of<DeviceError>([] { port_of(Socket(-1)); }), ContainsSubstring("has no port"));
}

TEST_CASE("a listener's port is free as soon as it is gone") {
  const auto port = free_loopback_port();
  for (int i = 0; i < 3; ++i) CHECK(listen_on("127.0.0.1", port).get() >= 0);
}

TEST_CASE("a listener without an address takes connections from all interfaces") {
  const auto listener = listen_on("", 0);
  CHECK_NOTHROW(wait_for_listener("127.0.0.1", port_of(listener), std::chrono::seconds(30)));
}

TEST_CASE("a listener is waited for, and missed within the timeout") {
  const auto port = free_loopback_port();
  const auto message =
      message_of<DeviceError>([&] { wait_for_listener("127.0.0.1", port, std::chrono::milliseconds(100)); });
  CHECK_THAT(message, ContainsSubstring("nobody answers at " + host_and_port("127.0.0.1", port) +
                                        " within 0.1 s: Connection refused"));
  CHECK_THAT(
      message_of<DeviceError>([&] { wait_for_listener(kNoHost, port, std::chrono::milliseconds(10)); }),
      ContainsSubstring("nobody answers at " + host_and_port(kNoHost, port) + " within 0.01 s: "));

  std::string problem = "not called";
  {
    std::jthread waiting([&] {
      problem =
          message_of<DeviceError>([&] { wait_for_listener("127.0.0.1", port, std::chrono::seconds(60)); });
    });
    const auto late = listen_on("127.0.0.1", port);
    waiting.join();
  }
  CHECK(problem == "no error");
}

TEST_CASE("an interface is known by its name, and another name is refused with those that there are") {
  CHECK(address_of_interface("lo", "THE_VARIABLE") == "127.0.0.1");
  const auto message =
      message_of<UsageError>([] { address_of_interface("no_such_interface", "THE_VARIABLE"); });
  CHECK(message ==
        "THE_VARIABLE is 'no_such_interface', but this host has no interface of that name with an address");
  try {
    address_of_interface("", "THE_VARIABLE");
    FAIL("no error");
  } catch (const UsageError& error) {
    CHECK_THAT(error.hint(), ContainsSubstring("name one of ") && ContainsSubstring("lo"));
  }
}
