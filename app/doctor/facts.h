// The facts that `lockstep doctor` knows of the machine and of this process. The checks judge them
// (checks.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/fashion_mnist.h>
#include <lockstep/support/cuda/info.h>

namespace lockstep {

inline constexpr int64_t kUnlimited = INT64_MAX;

// An error of the library, kept for a check.
struct Problem {
  std::string text = {};
  std::string hint = {};
};

struct GpuFacts {
  int cards = 0;                   // NVIDIA's on the PCI bus
  std::string kernel_driver = {};  // version of NVIDIA's kernel module: "580.65.06"; empty: not loaded
  std::string driver_cuda = {};    // the newest CUDA that the driver knows: "13.0"; empty: no driver
  std::string built_cuda = {};     // that this program and its torch were built with; empty: without
  std::vector<CudaDevice> devices = {};
  std::optional<std::string> no_devices = {};            // why there are none
  std::vector<Problem> device_problems = {};             // of GPUs that cannot compute
  std::vector<std::pair<int, int>> without_access = {};  // pairs whose copies go through the host
  std::string nccl = {};                                 // its version; empty: a build without
  bool infiniband = false;                               // the host has such an adapter
};

struct CpuFacts {
  int cores = 1;                                   // that this process may use
  int online = 1;                                  // of the machine
  double quota = 0;                                // cores' worth of time that the cgroup gets; 0: no limit
  std::map<std::string, std::string> openmp = {};  // variables of OpenMP that are set
  std::optional<Problem> openmp_problem = {};      // why a replica's threads cannot start
  std::vector<std::string> governors = {};         // of the cores, each once; empty: the machine has none
  std::string frequency_driver = {};               // "intel_pstate"
  double steal = 0;                                // share of time that the hypervisor gave to others
  double load = 0;                                 // tasks that run or want to, mean of the last minute
  std::string huge_pages = {};                     // "always", "madvise", "never"; empty: unknown
  std::string best = {};                           // of lockstep's kernels, those that this CPU can run best
  std::string chosen = {};                         // the kernels that run; empty: see kernels_problem
  std::optional<Problem> kernels_problem = {};
  std::string torch_kernels = {};  // "AVX512"
  std::string torch_asked = {};    // ATEN_CPU_CAPABILITY
};

struct LimitFacts {
  int64_t open_files = kUnlimited;
  int64_t most_open_files = kUnlimited;  // the hard limit, up to which a user may raise it
  int64_t threads_left = kUnlimited;     // that this user and cgroup may still start
  int64_t locked_bytes = kUnlimited;
  int64_t memory_bytes = 0;  // of the machine, or of the cgroup
  int64_t available_bytes = 0;
  int64_t shared_bytes = 0;  // size of /dev/shm; 0: there is none
  int64_t free_shared_bytes = 0;
};

// A folder, or the nearest one above it that exists.
struct FolderFacts {
  std::string path = {};     // as asked for
  std::string problem = {};  // why no file can be written there; empty: it can
  int64_t free_bytes = 0;
  double bytes_per_second = 0;  // of a small file that is written through to the disk
};

struct DataFacts {
  std::string folder = {};  // or "synthetic", or a file
  std::vector<FileCheck> files = {};
  std::optional<Problem> problem = {};  // a missing or damaged file
  std::string holds = {};               // "12 training and 4 test images in 2 classes"; empty: IDX files
};

struct HostNetworkFacts {
  std::vector<std::string> interfaces = {};  // that are up, without loopback
  std::string host = {};                     // where several processes meet; empty: nobody has said
  uint16_t port = 0;
  std::optional<Problem> master_problem = {};  // of the value of --master
  std::string route = {};         // the address of the interface that leads to the host; empty: none does
  bool own_host = true;           // this host is meant, which then listens
  std::string port_problem = {};  // why this host cannot listen on the port
  std::optional<Problem> world_problem = {};  // of the variables that launchers set
  std::vector<std::string> launchers = {};    // found on PATH
};

struct ClockFacts {
  int64_t now = 0;           // seconds since 1970
  bool synchronised = true;  // with other clocks, as the kernel says
  std::string source = {};   // "tsc"
};

struct TerminalFacts {
  bool interactive = false;
  bool is_terminal = false;  // also a dumb one
  std::string kind = {};     // TERM
  int width = 80;
  bool utf8 = true;
};

struct Facts {
  GpuFacts gpu = {};
  CpuFacts cpu = {};
  LimitFacts limits = {};
  FolderFacts cache = {};      // of downloads
  FolderFacts runs = {};       // of runs' files
  FolderFacts temporary = {};  // of what launch keeps
  DataFacts data = {};
  HostNetworkFacts network = {};
  ClockFacts clock = {};
  TerminalFacts terminal = {};
};

}  // namespace lockstep
