// Environments of launchers as their processes have them, for the tests of find_world(). Those of Open
// MPI 4.1, MPICH 4.0 and SLURM 22.05 were printed by `env` under them, without what does not matter.
#pragma once

#include <fmt/format.h>

#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/world/host_names.h>
#include <lockstep/parallel/world/world.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/refusal.h>

namespace lockstep {

// All of its fields in one line: "1/2, on its host 0/1, at node7:29511, run night/0/, ...".
inline std::string text_of(const World& world) {
  return fmt::format("{}/{}, on its host {}/{}, at {}:{}{}, run {}, launch {}, restart {}/{}, by {}",
                     world.process, world.processes, world.process_on_host, world.processes_on_host,
                     world.master_host, world.master_port, world.store_runs ? " served" : "", world.run,
                     world.launch, world.restart, world.max_restarts, world.launcher);
}

inline bool operator==(const World& a, const World& b) { return text_of(a) == text_of(b); }
inline std::ostream& operator<<(std::ostream& out, const World& world) { return out << text_of(world); }

namespace testing {

using Variables = std::map<std::string, std::string>;

inline Environment environment_of(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

inline Variables with(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}

inline Variables without(Variables variables, const std::vector<std::string>& names) {
  for (const auto& name : names) variables.erase(name);
  return variables;
}

// No test asks a name server.
inline bool all_resolve(const std::string&) { return true; }
inline bool none_resolve(const std::string&) { return false; }

inline World world_in(const Variables& variables, const GivenWorld& flags = {},
                      const HostResolves& resolves = all_resolve) {
  return find_world(flags, environment_of(variables), resolves);
}

// The error and the hint; empty if nothing is thrown.
inline std::string refusal(const Variables& variables, const GivenWorld& flags = {},
                           const HostResolves& resolves = all_resolve) {
  return refusal_and_hint([&] { world_in(variables, flags, resolves); });
}

// Process 5 of 6: two hosts with four and two processes.
inline Variables torchrun_variables() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "6"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node7"},
          {"MASTER_PORT", "29511"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_RUN_ID", "night"},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_MAX_RESTARTS", "3"}};
}

// Process 1 of 3, all on this host.
inline Variables open_mpi_variables() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},        {"OMPI_COMM_WORLD_SIZE", "3"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},  {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
          {"OMPI_COMM_WORLD_NODE_RANK", "1"},   {"OMPI_MCA_ess_base_jobid", "310116353"},
          {"PMIX_NAMESPACE", "310116353"},      {"PMIX_RANK", "1"},
          {"PMIX_SERVER_URI2", "310116352.0;"}, {"PMIX_ID", "310116353.1"}};
}

// Process 1 of 2, both on this host.
inline Variables mpich_variables() {
  return {{"PMI_RANK", "1"},        {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"},
          {"MPI_LOCALNRANKS", "2"}, {"PMI_FD", "8"},   {"HYDI_CONTROL_FD", "7"}};
}

inline Variables mpich_on_two_hosts() {
  return with(mpich_variables(), {{"MPI_LOCALNRANKS", "1"}, {"MPI_LOCALRANKID", "0"}});
}

// Process 3 of 4: two hosts with two processes each.
inline Variables slurm_variables() {
  return {{"SLURM_JOB_ID", "876440"},
          {"SLURM_JOB_NODELIST", "n[1-4]"},  // the step has two of them
          {"SLURM_LAUNCH_NODE_IPADDR", "192.0.2.1"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_NTASKS", "4"},
          {"SLURM_PROCID", "3"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NODELIST", "n[2-3]"},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
          {"SLURM_TASKS_PER_NODE", "2(x4)"}};
}

// As slurm_variables(), on one host.
inline Variables slurm_on_one_host() {
  return with(slurm_variables(), {{"SLURM_LOCALID", "3"},
                                  {"SLURM_NODEID", "0"},
                                  {"SLURM_STEP_NODELIST", "n2"},
                                  {"SLURM_STEP_TASKS_PER_NODE", "4"}});
}

// Started by hand: process 1 of 2.
inline GivenWorld hand_flags() { return {.rank = 1, .world_size = 2, .master = "10.0.0.1:29600"}; }

}  // namespace testing
}  // namespace lockstep
