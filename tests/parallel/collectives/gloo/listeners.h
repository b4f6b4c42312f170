// Ports and listeners of this process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <lockstep/parallel/collectives/gloo/sockets.h>

namespace lockstep::testing {

// Nothing listens there.
inline uint16_t free_loopback_port() { return port_of(listen_on("127.0.0.1", 0)); }

// The kernel's table of one address family: addresses, in its hexadecimal words, on which sockets of this
// process listen.
inline std::set<std::string> listening_addresses(const std::string& table) {
  std::set<std::string> own;  // inodes
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the descriptor of this listing, or one that another thread closes
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) own.insert(target.substr(8, target.size() - 9));
  }
  std::set<std::string> addresses;
  std::ifstream in("/proc/self/net/" + table);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
    if (state == "0A" && own.count(inode)) addresses.insert(local.substr(0, local.find(':')));
  }
  return addresses;
}

}  // namespace lockstep::testing
