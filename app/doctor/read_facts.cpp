// Facts of this process, and all facts together.
#include <lockstep/app/doctor/read_facts.h>

#include <ATen/Version.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include <lockstep/app/terminal/terminal.h>
#include <lockstep/parallel/collectives/nccl_version.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/parallel/world/world.h>
#include <lockstep/support/cpu/capability.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr const char* kRoot = "/";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int64_t soft_limit(int resource) {
  rlimit limit{};
  const bool limited = ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? static_cast<int64_t>(limit.rlim_cur) : kUnlimited;
}

void read_gpus(GpuFacts& gpu) {
  constexpr std::string_view kWith = "CUDA ";
  if (const auto built = cuda_build(); built.starts_with(kWith)) gpu.built_cuda = built.substr(kWith.size());
  gpu.driver_cuda = cuda_driver();
  gpu.devices = cuda_devices();
  gpu.no_devices = cuda_problem();
  gpu.nccl = nccl_version();
  const auto count = static_cast<int>(gpu.devices.size());
  for (int a = 0; a < count; ++a) {
    if (const auto problem = cuda_device_problem(a))
      gpu.device_problems.push_back({problem->message(), problem->hint()});
    for (int b = a + 1; b < count; ++b) {
      if (!cuda_peer_access(a, b) || !cuda_peer_access(b, a)) gpu.without_access.emplace_back(a, b);
    }
  }
}

void read_limits(LimitFacts& limits) {
  limits.open_files = soft_limit(RLIMIT_NOFILE);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max != RLIM_INFINITY) {
    limits.most_open_files = static_cast<int64_t>(files.rlim_max);
  }
  limits.locked_bytes = soft_limit(RLIMIT_MEMLOCK);
  const auto threads = soft_limit(RLIMIT_NPROC);
  if (threads == kUnlimited || ::geteuid() == 0) return;  // root has no limit
  limits.threads_left = std::min(limits.threads_left, threads - threads_of_user(kRoot, ::getuid()));
}

void read_kernels(CpuFacts& cpu) {
  cpu.best = name_of(kCpuCapabilityNames, choose_capability(nullptr));
  try {
    cpu.chosen = name_of(kCpuCapabilityNames, cpu_capability());
  } catch (const Error& error) {
    cpu.kernels_problem = Problem{error.message(), error.hint()};
  }
  cpu.torch_kernels = at::get_cpu_capability();
  cpu.torch_asked = variable("ATEN_CPU_CAPABILITY");
}

// lockstep sets GOMP_SPINCOUNT for itself.
void read_openmp(CpuFacts& cpu) {
  for (const char* name :
       {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT", "OMP_PROC_BIND", "OMP_PLACES",
        "OMP_DYNAMIC", "OMP_WAIT_POLICY", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"}) {
    if (auto value = variable(name); !value.empty()) cpu.openmp[name] = std::move(value);
  }
}

// Starts the threads of one replica on the CPU, as runs do.
void try_threads(CpuFacts& cpu) {
  try {
    const ReplicaWorkers replica({torch::kCPU}, default_threads(1));
  } catch (const Error& error) {
    cpu.openmp_problem = Problem{error.message(), error.hint()};
  }
}

void read_clock(ClockFacts& clock) {
  clock.now = std::time(nullptr);
  timex state{};
  const int status = ::adjtimex(&state);  // modes of 0: reads only
  clock.synchronised = status >= 0 && status != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
}

void read_terminal(TerminalFacts& facts) {
  const Terminal terminal(STDERR_FILENO, ColorMode::kNever);
  facts = {.interactive = terminal.interactive(),
           .is_terminal = ::isatty(STDERR_FILENO) != 0,
           .kind = variable("TERM"),
           .width = terminal.width(),
           .utf8 = utf8_locale()};
}

std::filesystem::path cache_folder() {
  const auto cache = variable("XDG_CACHE_HOME");
  return cache.empty() ? std::filesystem::path(variable("HOME")) / ".cache/lockstep"
                       : std::filesystem::path(cache) / "lockstep";
}

}  // namespace

Facts read_facts(const DoctorOptions& options) {
  Facts facts;
  const auto before = read_ticks(kRoot);
  read_gpu_files(kRoot, facts.gpu);
  read_gpus(facts.gpu);
  facts.cpu.cores = static_cast<int>(allowed_cores().size());
  read_cpu_files(kRoot, facts.cpu);
  read_openmp(facts.cpu);
  try_threads(facts.cpu);
  read_kernels(facts.cpu);
  read_limit_files(kRoot, facts.limits);
  read_limits(facts.limits);
  facts.cache = read_folder(cache_folder());
  facts.runs = read_folder(options.output);
  facts.temporary = read_folder(variable("TMPDIR").empty() ? "/tmp" : variable("TMPDIR"));
  facts.data = read_data(options.data);
  read_network_files(kRoot, facts.network);
  read_meeting_place(options.master, facts.network);
  facts.network.launchers = found_programs({"torchrun", "mpirun", "srun"}, variable("PATH"));
  try {
    find_world();
  } catch (const Error& error) {
    facts.network.world_problem = Problem{error.message(), error.hint()};
  }
  read_clock_files(kRoot, facts.clock);
  read_clock(facts.clock);
  read_terminal(facts.terminal);
  facts.cpu.steal = stolen_share(before, read_ticks(kRoot));
  return facts;
}

}  // namespace lockstep
