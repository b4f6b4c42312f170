// A channel over c10d's Gloo.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/collectives/gloo/posted_collectives.h>

namespace lockstep {

struct C10dStore;

struct GlooChannelOptions {
  int process = 0;
  int processes = 1;
  int channel = 0;           // its number, by which the processes find each other in the store
  std::string address = {};  // on which this process listens
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Locked while any channel of this process posts a collective. Groups share c10d's flight recorder, and
  // torch 2.11's notes a group's first collective in a map without a lock.
  std::shared_ptr<std::mutex> posting = {};
  // Returns true if connecting is in vain, since another process cannot go on. Asked several times a second.
  std::function<bool()> given_up = [] { return false; };
};

struct GlooChannel {
  std::unique_ptr<Channel> channel;
  std::shared_ptr<PostedCollectives> posted;  // sums under way
};

// Connects to the same channel of all other processes. Throws DeviceError when this process cannot listen on
// the address, and PeerError when the others cannot be reached within the timeout, or are given up.
GlooChannel open_gloo_channel(const std::shared_ptr<C10dStore>& store, const GlooChannelOptions& options);

}  // namespace lockstep
