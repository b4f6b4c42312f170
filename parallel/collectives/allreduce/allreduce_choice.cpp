#include <lockstep/parallel/collectives/allreduce/allreduce_choice.h>

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include <lockstep/parallel/collectives/named_options.h>
#include <lockstep/parallel/collectives/nccl_communicator.h>
#include <lockstep/parallel/world/host_names.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/error.h>
#include <lockstep/support/words_of.h>

namespace lockstep {
namespace {

ErrorText use_gloo() { return "use " + named_allreduce(Allreduce::kGloo) + ", which works on any devices"; }

std::string nccl_words(const std::exception_ptr& problem) {
  if (!problem) return {};
  try {
    std::rethrow_exception(problem);
  } catch (const std::exception& error) {
    return words_of(error);
  }
}

// Why NCCL cannot join these processes; empty if it can.
std::string nccl_problem_of(const std::vector<AllreduceSupport>& all) {
  for (size_t process = 0; process < all.size(); ++process) {
    const auto& problem = all[process].nccl_problem;
    if (!problem.empty()) return fmt::format("NCCL cannot join process {}: {}", process, problem);
  }
  return {};
}

struct SharedGpu {
  size_t first = 0, second = 0;  // two processes that drive it
  std::string uuid = {};         // empty: they may be two GPUs after all
};

// A GPU that is there twice.
std::optional<SharedGpu> find_shared_gpu(const std::vector<AllreduceSupport>& all) {
  std::map<std::string, size_t> drivers;  // by UUID or place
  for (size_t process = 0; process < all.size(); ++process) {
    for (const auto& gpu : all[process].gpus) {
      const auto& name = gpu.uuid.empty() ? gpu.place : gpu.uuid;
      const auto [known, is_new] = drivers.emplace(name, process);
      if (!is_new) return SharedGpu{.first = known->second, .second = process, .uuid = gpu.uuid};
    }
  }
  return std::nullopt;
}

Allreduce nccl_or_gloo(Allreduce wanted, const std::vector<AllreduceSupport>& all) {
  const auto problem = nccl_problem_of(all);
  const auto shared = find_shared_gpu(all);
  if (wanted == Allreduce::kAuto) return problem.empty() && !shared ? Allreduce::kNccl : Allreduce::kGloo;
  if (!problem.empty()) throw UsageError(problem, use_gloo());
  // Without UUIDs the same place may be two GPUs, and NCCL itself refuses two replicas on one.
  if (shared && !shared->uuid.empty()) {
    throw UsageError(fmt::format("NCCL allows one replica per GPU, but processes {} and {} both drive GPU {}",
                                 shared->first, shared->second, shared->uuid),
                     use_gloo());
  }
  return wanted;
}

}  // namespace

AllreduceSupport support_of(std::span<const torch::Device> devices) {
  AllreduceSupport support{.nccl_problem = nccl_words(nccl_problem(devices))};
  for (const auto& device : devices) {
    if (device.is_cpu()) continue;
    support.gpus.push_back({.uuid = device.is_cuda() ? cuda_uuid(device.index()) : std::string(),
                            .place = fmt::format("{} {}", own_host_name(), device.str())});
  }
  return support;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NamedGpu, uuid, place)

void to_json(nlohmann::json& value, const AllreduceSupport& support) {
  value = {{"nccl_problem", support.nccl_problem}, {"gpus", support.gpus}};
}

void from_json(const nlohmann::json& value, AllreduceSupport& support) {
  value.at("nccl_problem").get_to(support.nccl_problem);
  value.at("gpus").get_to(support.gpus);
}

Allreduce choose_for_all(Allreduce wanted, const std::vector<AllreduceSupport>& all) {
  switch (wanted) {
    case Allreduce::kAuto:
    case Allreduce::kNccl:
      return nccl_or_gloo(wanted, all);
    case Allreduce::kGloo:
      return wanted;
    default:
      throw UsageError(named_allreduce(wanted) +
                           fmt::format(" sums within one process, but there are {} processes", all.size()),
                       "use " + named_allreduce(Allreduce::kGloo) + " or auto");
  }
}

}  // namespace lockstep
