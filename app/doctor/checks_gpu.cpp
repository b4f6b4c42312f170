#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include <lockstep/app/doctor/checks.h>
#include <lockstep/app/doctor/largest_model.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

constexpr const char* kNoGpu = "none: no NVIDIA GPU";

// Returns true if there is anything of NVIDIA's.
bool has_hardware(const GpuFacts& gpu) { return gpu.cards > 0 || !gpu.kernel_driver.empty(); }

int major_of(const std::string& version) { return std::atoi(version.c_str()); }

Judgement judge_driver(const Facts& facts) {
  const auto& gpu = facts.gpu;
  if (!has_hardware(gpu)) {
    return {Health::kOk,
            fmt::format("{}; built {}", kNoGpu,
                        gpu.built_cuda.empty() ? "without CUDA" : "with CUDA " + gpu.built_cuda)};
  }
  if (gpu.kernel_driver.empty()) {
    return {Health::kFail, fmt::format("no driver for {}", counted(gpu.cards, "NVIDIA card")),
            "install NVIDIA's driver; start a container with --gpus all"};
  }
  if (gpu.built_cuda.empty()) {
    return {Health::kWarn,
            fmt::format("driver {}, but this lockstep was built without CUDA", gpu.kernel_driver),
            "LOCKSTEP_BUILD_CUDA=on ./scripts/run.sh builds with it"};
  }
  if (major_of(gpu.driver_cuda) < major_of(gpu.built_cuda)) {
    return {Health::kFail,
            fmt::format("driver {} knows CUDA {}, torch has CUDA {}", gpu.kernel_driver,
                        gpu.driver_cuda.empty() ? "of no version" : gpu.driver_cuda, gpu.built_cuda),
            fmt::format("install a driver that knows CUDA {}", gpu.built_cuda)};
  }
  return {Health::kOk, fmt::format("driver {} with CUDA {}, torch has CUDA {}", gpu.kernel_driver,
                                   gpu.driver_cuda, gpu.built_cuda)};
}

Judgement judge_gpus(const Facts& facts) {
  const auto& gpu = facts.gpu;
  if (!has_hardware(gpu)) return {Health::kOk, kNoGpu};
  if (gpu.devices.empty()) {
    const bool can = !gpu.built_cuda.empty();
    return {can ? Health::kFail : Health::kWarn,
            fmt::format("none can be used: {}", gpu.no_devices.value_or("CUDA lists none")),
            can ? "see CUDA_VISIBLE_DEVICES and nvidia-smi"
                : "LOCKSTEP_BUILD_CUDA=on ./scripts/run.sh builds with CUDA"};
  }
  if (!gpu.device_problems.empty()) {
    const auto& first = gpu.device_problems.front();
    return {Health::kFail, first.text, first.hint.empty() ? "see nvidia-smi" : first.hint};
  }
  const auto count = static_cast<int>(gpu.devices.size());
  const auto& first = gpu.devices.front();
  const auto text = fmt::format("{}: {}", counted(count, "GPU"), first.name);
  if (first.total_bytes == 0) return {Health::kOk, text};
  return {Health::kOk, text + "; " + largest_model_text(static_cast<int64_t>(first.total_bytes), count)};
}

Judgement judge_peers(const Facts& facts) {
  const auto& gpu = facts.gpu;
  if (gpu.devices.size() < 2) return {Health::kOk, gpu.devices.empty() ? kNoGpu : "not needed: one GPU"};
  if (gpu.without_access.empty()) return {Health::kOk, "every GPU reads every other one's memory"};
  const auto& [a, b] = gpu.without_access.front();
  return {Health::kWarn,
          fmt::format("{} copy through the host, such as cuda:{} and cuda:{}",
                      counted(static_cast<int64_t>(gpu.without_access.size()), "pair"), a, b),
          "see 'nvidia-smi topo -p2p r'; virtual machines and IOMMU settings can forbid it"};
}

Judgement judge_nccl(const Facts& facts) {
  const auto& gpu = facts.gpu;
  if (!gpu.nccl.empty()) return {Health::kOk, "NCCL " + gpu.nccl};
  if (gpu.devices.size() < 2) return {Health::kOk, "none, and not needed: fewer than two GPUs"};
  return {Health::kWarn, fmt::format("none in this build, for {} GPUs", gpu.devices.size()),
          "LOCKSTEP_BUILD_CUDA=on scripts/setup.sh fetches it; then build again"};
}

constexpr Check kGpuChecks[] = {
    {"gpu driver", judge_driver}, {"gpus", judge_gpus}, {"peer access", judge_peers}, {"nccl", judge_nccl}};

}  // namespace

std::span<const Check> gpu_checks() { return kGpuChecks; }

}  // namespace lockstep
