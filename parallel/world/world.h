// Which processes train together, and which of them this one is.
//
// A launcher (torchrun, mpirun, srun, lockstep launch) starts the processes and tells each its place in
// environment variables; without one, the caller names it. find_world() reads both, and nothing else does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace lockstep {

struct World {
  int process = 0;  // this process, 0 .. processes - 1
  int processes = 1;
  // This process among those of its host. processes_on_host is 0 while nobody has said so:
  // join_process_group() counts them then.
  int process_on_host = 0;
  int processes_on_host = 1;
  // Where the store listens, through which the processes find each other. Empty and 0 for one process.
  std::string master_host = {};
  uint16_t master_port = 0;
  bool store_runs = false;  // the launcher serves the store; otherwise process 0 does
  std::string run = {};     // prefix of the store's keys: differs between runs and between restarts
  std::string launch = {};  // names the launch: the same at every restart; empty: the launcher tells none
  int restart = 0;          // how often the launcher has started all processes again
  int max_restarts = 0;     // how often it does so at most
  std::string launcher =
      {};  // who started the processes, for messages: "torchrun", "Open MPI"; empty: nobody
};

// The place that a caller names: all three or none. They count processes, not replicas.
struct GivenWorld {
  std::optional<int> rank = {};
  std::optional<int> world_size = {};
  std::optional<std::string> master = {};  // HOST:PORT of the store; alone it overrides the launcher's
};

// Returns the value of an environment variable; nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// Finds the world: by `given`, else by torchrun's variables, else by Open MPI's, MPICH's (PMI), SLURM's; else
// this process is alone. SLURM's count only inside a job step (srun), since a batch script has them, too.
// MASTER_ADDR and MASTER_PORT may name the place for every launcher. An empty variable counts as not set, but
// is an error for the rank and the size. Throws UsageError for half an environment (names what is set and
// what is missing), for a number that is none, for a rank outside the world or its host, and where several
// hosts have no address to meet at (the hint names master).
World find_world(const GivenWorld& given = {}, const Environment& environment = process_environment());

}  // namespace lockstep
