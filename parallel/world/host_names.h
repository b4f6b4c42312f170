// Names and addresses of hosts, without asking the other processes.
#pragma once

#include <functional>
#include <string>

#include <lockstep/parallel/world/world.h>

namespace lockstep {

inline constexpr const char* kLoopback = "127.0.0.1";

using HostResolves = std::function<bool(const std::string& name)>;

// The name of this host.
std::string own_host_name();

// Differs between machines, and between containers with names of their own.
std::string machine_name();

// Returns true if the resolver knows the name.
bool host_resolves(const std::string& name);

// Returns true if this address is one of this host's: a socket can be bound to it.
bool is_own_address(const std::string& address);

// find_world() with another resolver.
World find_world(const GivenWorld& given, const Environment& environment, const HostResolves& resolves);

}  // namespace lockstep
