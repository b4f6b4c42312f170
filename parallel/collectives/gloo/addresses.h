// Addresses of this machine, and what listens on them.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Names this host as others on it do: its name and its network namespace, which has a loopback of its own.
std::string host_identity();

// Whether host:port resolves to a loopback address. False for a name that does not resolve.
bool is_loopback(const std::string& host, uint16_t port);

// The address of the interface that leads to host:port. Sends nothing. Throws DeviceError for a name that
// does not resolve and for a network without a route.
std::string address_towards(const std::string& host, uint16_t port);

// A socket that listens on address:port and nowhere else; the caller closes it. Throws DeviceError that names
// both if it cannot, for example when another program listens there.
int listen_on(const std::string& address, uint16_t port);

}  // namespace lockstep
