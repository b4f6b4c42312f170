#include <lockstep/app/machine/machine.h>

#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include <lockstep/app/machine/memory_usage.h>
#include <lockstep/app/machine/version.h>
#include <lockstep/parallel/collectives/nccl_version.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  }
  return "unknown CPU";
}

// The first version in a text: "3.10.2" in "Intel(R) MKL-DNN v3.10.2 (Git Hash ...)".
std::string version_in(const std::string& text) {
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word.starts_with('v')) word.erase(0, 1);
    if (!word.empty() && word.front() >= '0' && word.front() <= '9' && word.find('.') != std::string::npos) {
      return word.substr(0, word.find('-'));
    }
  }
  return "not in this build";
}

}  // namespace

std::string cores_text(const Machine& machine) {
  if (machine.cores >= machine.online) return counted(machine.cores, "core");
  return fmt::format("{} of {}", machine.cores, counted(machine.online, "core"));
}

Machine this_machine() {
  Machine machine;
  machine.cpu = cpu_name();
  machine.cores = static_cast<int>(allowed_cores().size());
  machine.online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  machine.instructions = at::get_cpu_capability();
  machine.total_bytes = total_bytes();
  machine.available_bytes = available_bytes();
  machine.gpus = cuda_devices();
  machine.gpu_problem = cuda_problem();
  machine.libraries = {{"lockstep", LOCKSTEP_VERSION},
                       {"LibTorch", TORCH_VERSION},
                       {"oneDNN", version_in(at::get_mkldnn_version())},
                       {"MKL", version_in(at::get_mkl_version())},
                       {"CUDA", version_in(cuda_build())},
                       {"NCCL", version_in(nccl_version())},
                       {"compiler", compiler_text()}};
  return machine;
}

}  // namespace lockstep
