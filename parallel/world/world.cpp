#include <lockstep/parallel/world/world.h>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

#include <lockstep/parallel/world/host_names.h>
#include <lockstep/parallel/world/launch_environment.h>
#include <lockstep/parallel/world/launcher_variables.h>
#include <lockstep/parallel/world/slurm_hosts.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int kMostProcesses = 1 << 20;
constexpr uint16_t kDefaultPort = 29500;  // torch's
constexpr const char* kMasterExamples = "give HOST:PORT, such as 127.0.0.1:29500 or [::1]:29500";

ErrorText name_master() {
  return "give " + NamedOption{"master", "HOST:PORT", "the master's address"} +
         ": a host that all processes reach, and a port";
}

// "the rank, the world size and the master"
ErrorText named_place() {
  return NamedOption{"rank", "", "the rank"} + ", " + NamedOption{"world_size", "", "the world size"} +
         " and " + NamedOption{"master", "", "the master"};
}

// rank, size: what says the two numbers, such as "torchrun's RANK". The caller knows: a variable that a
// launcher sets, or a value that may come from a flag, from a flag's variable or from a program's own code.
void check_place(const std::string& rank, int process, const std::string& size, int processes) {
  if (process < processes) return;
  throw UsageError(fmt::format("{} is {}, but {} is {}", rank, process, size, processes),
                   fmt::format("ranks count from 0 to {}", processes - 1));
}

// The launcher may not know how many there are: then processes_on_host is 0.
void check_local_place(const World& world) {
  const int place = world.process_on_host, count = world.processes_on_host;
  if (count == 0 || (place < count && count <= world.processes)) return;
  throw UsageError(
      fmt::format("{} gives this process local rank {} among {} processes of its host, in a world of {}",
                  world.launcher, place, count, world.processes),
      kAsTheLauncherSets);
}

// process, processes and, if the launcher tells them, the local ones.
World place_of(const LauncherVariables& variables, const std::string& rank, const std::string& size,
               const std::string& local_rank, const std::string& local_size) {
  World world{.launcher = variables.launcher()};
  world.processes = variables.number(size, 1, kMostProcesses);
  world.process = variables.number(rank, 0, kMostProcesses);
  check_place(fmt::format("{}'s {}", variables.launcher(), rank), world.process, size, world.processes);
  world.processes_on_host = variables.optional_number(local_size, 1, world.processes).value_or(0);
  world.process_on_host = variables.optional_number(local_rank, 0, world.processes - 1).value_or(0);
  check_local_place(world);
  return world;
}

// A name, or an address without brackets.
bool is_host(const std::string& text) {
  const auto before_scope = text.substr(0, text.find('%'));  // fe80::1%eth0
  in6_addr address{};
  if (::inet_pton(AF_INET6, before_scope.c_str(), &address) == 1) return true;
  return !text.empty() && text.find_first_of(":/[]@ \t\r\n") == std::string::npos;
}

uint16_t master_port(const LauncherVariables& variables, uint16_t otherwise) {
  const auto port = variables.optional_number("MASTER_PORT", 1, 65535, "give all processes the same port");
  return static_cast<uint16_t>(port.value_or(otherwise));
}

// MASTER_ADDR and MASTER_PORT, which torchrun sets and a user of other launchers may set.
bool take_master(World& world, const LauncherVariables& variables) {
  const auto host = variables.text("MASTER_ADDR");
  if (!host) return false;
  if (world.processes > 1 && !is_host(*host)) {
    throw UsageError(
        fmt::format("MASTER_ADDR is '{}', but it must be the name or the address of a host", *host),
        "give the host alone, such as node1, 10.0.0.1 or fd00::1; MASTER_PORT takes the port");
  }
  world.master_host = *host;
  world.master_port = master_port(variables, kDefaultPort);
  return true;
}

// A port between 29500 and 39499 that is the same for all processes of a job and differs between jobs.
// (FNV-1a: std::hash may differ between builds.)
uint16_t port_of_job(std::string_view job) {
  uint32_t hash = 2166136261u;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return static_cast<uint16_t>(kDefaultPort + hash % 10000);
}

std::string job_name(const LauncherVariables& variables, const std::vector<std::string>& names) {
  for (const auto& name : names) {
    if (const auto value = variables.text(name)) return *value;
  }
  return "";
}

// torchrun's runs are all called "none" where the user gives no --rdzv-id. Then the folder of its logs, which
// it makes anew, tells them apart, if it keeps any.
std::string torchrun_launch(const LauncherVariables& variables) {
  auto run = variables.text("TORCHELASTIC_RUN_ID").value_or("none");
  if (run != "none") return run;
  const auto file = variables.text("TORCHELASTIC_ERROR_FILE").value_or("");
  const auto attempt = file.rfind("/attempt_");
  return attempt == std::string::npos ? "" : file.substr(0, attempt);
}

std::optional<World> torchrun(const Environment& environment) {
  const bool own = environment(kLauncherVariable).has_value();
  const LauncherVariables variables(environment, own ? "lockstep launch" : "torchrun");
  if (!variables.all_set({"RANK", "WORLD_SIZE"})) return std::nullopt;
  auto world = place_of(variables, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  take_master(world, variables);
  world.store_runs = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  constexpr int kMax = std::numeric_limits<int>::max();
  world.restart = variables.optional_number("TORCHELASTIC_RESTART_COUNT", 0, kMax).value_or(0);
  world.max_restarts = variables.optional_number("TORCHELASTIC_MAX_RESTARTS", 0, kMax).value_or(0);
  world.launch = torchrun_launch(variables);
  world.run = fmt::format("{}/{}/{}", variables.text("TORCHELASTIC_RUN_ID").value_or(""),
                          variables.text("TORCHELASTIC_RESTART_COUNT").value_or("0"),
                          variables.text(kTokenVariable).value_or(""));
  if (world.processes > 1 && world.master_host.empty()) {
    throw UsageError("RANK and WORLD_SIZE are set, but MASTER_ADDR is missing", name_master());
  }
  return world;
}

// mpirun. It names no place to meet: all on one host meet on its loopback interface.
std::optional<World> mpi(const LauncherVariables& variables, const std::string& rank, const std::string& size,
                         const std::string& local_rank, const std::string& local_size,
                         const std::vector<std::string>& job) {
  if (!variables.all_set({rank, size})) return std::nullopt;
  auto world = place_of(variables, rank, size, local_rank, local_size);
  world.run = job_name(variables, job);
  if (world.processes == 1 || take_master(world, variables)) return world;
  if (world.processes_on_host != world.processes) {
    throw UsageError(fmt::format("{} has started {} processes on several hosts, but MASTER_ADDR is not set",
                                 variables.launcher(), world.processes),
                     name_master());
  }
  world.master_host = kLoopback;
  world.master_port = master_port(variables, world.run.empty() ? kDefaultPort : port_of_job(world.run));
  return world;
}

std::optional<World> open_mpi(const Environment& environment) {
  return mpi({environment, "Open MPI"}, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
             {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"});
}

// SLURM_NTASKS may be the job's number, not the step's.
std::string slurm_size(const LauncherVariables& variables) {
  return variables.text("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

// srun --mpi=pmi2 sets some of MPICH's variables, but SLURM's name the hosts, too. An mpirun inside a step
// sets all of MPICH's.
bool started_by_srun(const LauncherVariables& variables) {
  return variables.text("SLURM_STEP_ID") && !variables.text("MPI_LOCALNRANKS") &&
         variables.text("PMI_RANK") == variables.text("SLURM_PROCID") &&
         variables.text("PMI_SIZE") == variables.text(slurm_size(variables));
}

// PMI_PORT is no name of the job: it differs between hosts.
std::optional<World> mpich(const Environment& environment) {
  const LauncherVariables variables(environment, "MPICH");
  if (started_by_srun(variables)) return std::nullopt;
  return mpi(variables, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"PMI_JOBID"});
}

// The first host of the job. Names of a test cluster on one machine do not resolve: then the host from which
// it was launched serves, if it belongs to the job.
std::string slurm_master(const LauncherVariables& variables, const std::vector<std::string>& hosts,
                         const HostResolves& resolves) {
  if (resolves(hosts.front())) return hosts.front();
  const auto launcher = variables.text("SLURM_LAUNCH_NODE_IPADDR");
  if (launcher && is_own_address(*launcher)) return *launcher;
  throw UsageError(fmt::format("the first host of SLURM's job, {}, does not resolve", hosts.front()),
                   name_master());
}

std::optional<World> slurm(const Environment& environment, const HostResolves& resolves) {
  const LauncherVariables variables(environment, "SLURM");
  const auto size = slurm_size(variables);
  if (!variables.text("SLURM_STEP_ID") || !variables.all_set({"SLURM_PROCID", size})) {
    return std::nullopt;  // not in a job, or in its batch script, which has SLURM_PROCID=0, too
  }
  auto world = place_of(variables, "SLURM_PROCID", size, "SLURM_LOCALID", "");
  world.run =
      fmt::format("{}.{}", variables.text("SLURM_JOB_ID").value_or(""), *variables.text("SLURM_STEP_ID"));
  if (world.processes == 1) return world;
  const auto per_host = variables.text("SLURM_STEP_TASKS_PER_NODE");
  const auto host = variables.optional_number("SLURM_NODEID", 0, kMostProcesses);
  if (per_host && host) {
    const auto tasks = slurm_tasks(*per_host);
    if (static_cast<size_t>(*host) < tasks.size())
      world.processes_on_host = tasks[static_cast<size_t>(*host)];
    check_local_place(world);
  }
  if (take_master(world, variables)) return world;
  world.master_port = master_port(variables, port_of_job(world.run));
  const auto list = job_name(variables, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"});
  world.master_host = world.processes_on_host == world.processes
                          ? kLoopback
                          : slurm_master(variables, slurm_hosts(list), resolves);
  return world;
}

struct Master {
  std::string host;
  uint16_t port;
};

// HOST:PORT, with an IPv6 address in brackets.
Master read_master(const std::string& master) {
  const auto colon = master.rfind(':');
  auto host = master.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool is_plain = bracketed || host.find(':') == std::string::npos;
  if (colon == std::string::npos || !is_plain || !is_host(host)) {
    throw UsageError(fmt::format("the master is '{}', but it must be HOST:PORT", master), kMasterExamples);
  }
  const auto port = number_of("the master's port", master.substr(colon + 1), 1, 65535, kMasterExamples);
  return {.host = host, .port = static_cast<uint16_t>(port)};
}

// The environment with this master in place of the launcher's, whose store, if it serves one, is not there.
Environment with_master(const Environment& environment, const Master& master) {
  const auto port = std::to_string(master.port);
  const bool same = environment("MASTER_ADDR") == master.host && environment("MASTER_PORT") == port;
  return
      [environment, host = master.host, port, same](const std::string& name) -> std::optional<std::string> {
        if (name == "MASTER_ADDR") return host;
        if (name == "MASTER_PORT") return port;
        if (name == "TORCHELASTIC_USE_AGENT_STORE" && !same) return std::nullopt;
        return environment(name);
      };
}

World given_world(const GivenWorld& given, const Environment& environment) {
  if ((given.rank || given.world_size) && environment(kLauncherVariable) &&
      environment("WORLD_SIZE") != "1") {
    throw UsageError(fmt::format("the {} is given, but lockstep launch has started this process and gives it",
                                 given.rank ? "rank" : "world size"),
                     "leave out " + named_place());
  }
  std::vector<std::string> named, missing;
  (given.rank ? named : missing).push_back("rank");
  (given.world_size ? named : missing).push_back("world size");
  (given.master ? named : missing).push_back("master");
  if (!missing.empty()) {
    throw UsageError(
        fmt::format("{} given, but {} missing", fmt::join(named, " and "), fmt::join(missing, " and ")),
        "give " + named_place() + " together, or use a launcher");
  }
  const auto master = read_master(*given.master);
  const auto number = [](const char* name, int value, int low, const char* hint) {
    return number_of(name, std::to_string(value), low, kMostProcesses, hint);
  };
  World world{.process = number("the rank", *given.rank, 0, "ranks count from 0"),
              .processes = number("the world size", *given.world_size, 1, "it is the number of processes"),
              .processes_on_host = 0,
              .master_host = master.host,
              .master_port = master.port};
  check_place("the rank", world.process, "the world size", world.processes);
  return world;
}

// Nullopt if none has started this process.
std::optional<World> launched_world(const Environment& environment, const HostResolves& resolves) {
  if (auto world = torchrun(environment)) return world;
  if (auto world = open_mpi(environment)) return world;
  if (auto world = mpich(environment)) return world;
  return slurm(environment, resolves);
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

World find_world(const GivenWorld& given, const Environment& environment, const HostResolves& resolves) {
  std::optional<World> world;
  if (!given.rank && !given.world_size) {
    world = launched_world(given.master ? with_master(environment, read_master(*given.master)) : environment,
                           resolves);
  }
  if (!world && (given.rank || given.world_size || given.master)) world = given_world(given, environment);
  if (world && world->processes == 1) {
    return {.launch = world->launch,
            .restart = world->restart,
            .max_restarts = world->max_restarts,
            .launcher = world->launcher};
  }
  return world.value_or(World{});
}

World find_world(const GivenWorld& given, const Environment& environment) {
  return find_world(given, environment, host_resolves);
}

}  // namespace lockstep
