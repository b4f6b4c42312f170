#include <lockstep/parallel/collectives/peer_notice.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <vector>

namespace lockstep {

std::optional<std::string> peer_notice(std::span<const torch::Device> devices,
                                       const std::function<bool(int, int)>& access) {
  std::set<int> gpus;
  for (const auto& device : devices) {
    if (device.is_cuda()) gpus.insert(device.index());
  }
  std::vector<std::string> pairs;
  for (const int a : gpus) {
    for (const int b : gpus) {
      if (a < b && !(access(a, b) && access(b, a))) pairs.push_back(fmt::format("cuda:{} and cuda:{}", a, b));
    }
  }
  if (pairs.empty()) return std::nullopt;
  return fmt::format(
      "{} cannot read each other's memory (no peer access): copies between them go through the host",
      fmt::join(pairs, ", "));
}

}  // namespace lockstep
