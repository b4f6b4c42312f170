// How the processes learn who is there.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <lockstep/parallel/collectives/gloo/process_store.h>

namespace lockstep {

// The facts that a process states about itself.
struct Presence {
  std::string host = {};     // name, for messages
  std::string machine = {};  // equal if two processes have the same loopback interface
  int pid = 0;
  std::string address = {};     // of the interface that leads to the store; empty if there is none
  std::vector<int> cores = {};  // on which it may run
};

Presence own_presence(const World& world);

// Takes this process's place and returns what all processes say, by process. Throws DeviceError when two
// processes claim one place or count different worlds, the same in every process that still waits; and when
// some do not come within the timeout, which it names.
std::vector<Presence> call_roll(const ProcessStore& store, const World& world, const Presence& own,
                                std::chrono::milliseconds timeout);

// Pins the calling thread to its share of the cores that processes of its host have in common.
void divide_cores(const World& world, const std::vector<Presence>& all);

bool on_one_host(const std::vector<Presence>& all);

// Sets process_on_host and processes_on_host if the launcher has not said them.
void count_processes_on_host(World& world, const std::vector<Presence>& all);

// The address on which this process listens for the others: `listen` if there is one; else loopback if all
// processes are on one host; else that of the interface that leads to the store, or to another host if the
// store is here. Throws DeviceError if that is loopback.
std::string channel_address(const World& world, const std::vector<Presence>& all, const std::string& listen);

}  // namespace lockstep
