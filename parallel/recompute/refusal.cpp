#include <lockstep/parallel/recompute/refusal.h>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

thread_local std::exception_ptr refused_here;

}  // namespace

RecomputeRefused::RecomputeRefused(std::exception_ptr error)
    : outer_(std::exchange(refused_here, std::move(error))) {}

RecomputeRefused::~RecomputeRefused() { refused_here = outer_; }

void require_recompute() {
  if (refused_here) std::rethrow_exception(refused_here);
}

std::exception_ptr refusal_on_shared_gpu(const std::vector<c10::Device>& devices, int local) {
  const auto& device = devices.at(static_cast<size_t>(local));
  const auto replicas = std::count(devices.begin(), devices.end(), device);
  if (device.is_cpu() || replicas == 1) return nullptr;
  return std::make_exception_ptr(UsageError(
      fmt::format("recompute() on {}, which {} replicas of this process share", device.str(), replicas),
      "they draw from one generator, which recompute() sets back: use one replica per GPU, or a "
      "process for each"));
}

std::exception_ptr refusal_under_capture() {
  return std::make_exception_ptr(
      FailedError("recompute() in a step that is captured", "let the step run without a graph"));
}

}  // namespace lockstep
