#include <lockstep/app/machine/need_memory.h>

#include <fmt/format.h>

#include <map>

#include <lockstep/app/machine/memory_usage.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/error.h>

namespace lockstep {

void need_host_memory(int64_t bytes, const std::string& what, const std::string& remedy) {
  const auto available = available_bytes();
  if (available == 0 || bytes <= available) return;
  throw MemoryError(fmt::format("{} would take {:.1f} GB of memory, but {:.1f} GB are free", what,
                                static_cast<double>(bytes) / 1e9, static_cast<double>(available) / 1e9),
                    fmt::format("use a smaller {}", remedy));
}

void need_gpu_memory(std::span<const torch::Device> devices, std::span<const int64_t> bytes,
                     const std::string& what, const std::string& remedy) {
  std::map<int, int64_t> needed;  // by GPU
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].is_cuda()) needed[devices[i].index()] += bytes[i];
  }
  if (needed.empty()) return;
  const auto gpus = cuda_devices();
  for (const auto& [index, sum] : needed) {
    const auto free = gpus.at(static_cast<size_t>(index)).free_bytes;
    if (static_cast<uint64_t>(sum) <= free) continue;
    throw MemoryError(fmt::format("{} would take {:.1f} GB of cuda:{}, but {:.1f} GB are free", what,
                                  static_cast<double>(sum) / 1e9, index, static_cast<double>(free) / 1e9),
                      fmt::format("use a smaller {}", remedy));
  }
}

}  // namespace lockstep
