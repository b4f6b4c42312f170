// Names and addresses of hosts.
#pragma once

#include <netdb.h>

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

// The result of getaddrinfo() for a TCP port of a host.
struct Addresses {
  std::unique_ptr<addrinfo, FreeAddresses> list = {};  // null: nothing
  std::string problem = {};                            // why; empty if there is something
};

// host: name or address. Asks the name service, which can take seconds.
Addresses find_addresses(const std::string& host, uint16_t port);

// Returns true if it is written as an address: "10.0.0.1", "::1".
bool is_numeric(const std::string& host);

// Returns true if it always means the loopback interface: "localhost", "127.0.0.1", "::1". Another name may
// mean it on its own host only.
bool is_loopback(const std::string& host);

// "node1:29500", "[::1]:29500"
std::string host_and_port(const std::string& host, uint16_t port);

// The first address of this host's interface: of IPv4 if it has one. Throws UsageError that names `asked_by`
// and the interfaces that have addresses if it has none.
std::string address_of_interface(const std::string& name, const std::string& asked_by);

// The address of the local interface that leads to the host; empty if none does. Sends nothing to the host.
std::string address_towards(const std::string& host, uint16_t port);

}  // namespace lockstep
