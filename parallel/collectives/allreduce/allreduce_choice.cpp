#include <lockstep/parallel/collectives/allreduce/allreduce_choice.h>

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <map>
#include <optional>
#include <sstream>

#include <lockstep/parallel/collectives/nccl_communicator.h>
#include <lockstep/parallel/world/host_names.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/error.h>
#include <lockstep/support/words_of.h>

namespace lockstep {
namespace {

constexpr const char* kUseGloo = "use allreduce gloo, which works on any devices";

std::string nccl_words(const std::exception_ptr& problem) {
  if (!problem) return {};
  try {
    std::rethrow_exception(problem);
  } catch (const std::exception& error) {
    return words_of(error);
  }
}

void check_wanted_alike(const std::vector<AllreduceWish>& wishes) {
  for (size_t process = 1; process < wishes.size(); ++process) {
    if (wishes[process].wanted == wishes.front().wanted) continue;
    throw UsageError(fmt::format("process 0 wants allreduce {}, process {} wants {}", wishes.front().wanted,
                                 process, wishes[process].wanted),
                     "start all processes with the same program and options");
  }
}

// Why NCCL cannot join these processes; empty if it can.
std::string nccl_problem_of(const std::vector<AllreduceWish>& wishes) {
  for (size_t process = 0; process < wishes.size(); ++process) {
    const auto& problem = wishes[process].nccl_problem;
    if (!problem.empty()) return fmt::format("NCCL cannot join process {}: {}", process, problem);
  }
  return {};
}

struct SharedGpu {
  size_t first = 0, second = 0;  // two processes that drive it
  std::string uuid = {};         // empty: they may be two GPUs after all
};

// A GPU that is there twice.
std::optional<SharedGpu> find_shared_gpu(const std::vector<AllreduceWish>& wishes) {
  std::map<std::string, size_t> drivers;  // by UUID or place
  for (size_t process = 0; process < wishes.size(); ++process) {
    for (const auto& gpu : wishes[process].gpus) {
      const auto& name = gpu.uuid.empty() ? gpu.place : gpu.uuid;
      const auto [known, is_new] = drivers.emplace(name, process);
      if (!is_new) return SharedGpu{.first = known->second, .second = process, .uuid = gpu.uuid};
    }
  }
  return std::nullopt;
}

Allreduce nccl_or_gloo(Allreduce wanted, const std::vector<AllreduceWish>& wishes) {
  const auto problem = nccl_problem_of(wishes);
  const auto shared = find_shared_gpu(wishes);
  if (wanted == Allreduce::kAuto) return problem.empty() && !shared ? Allreduce::kNccl : Allreduce::kGloo;
  if (!problem.empty()) throw UsageError(problem, kUseGloo);
  // Without UUIDs the same place may be two GPUs, and NCCL itself refuses two replicas on one.
  if (shared && !shared->uuid.empty()) {
    throw UsageError(fmt::format("NCCL allows one replica per GPU, but processes {} and {} both drive GPU {}",
                                 shared->first, shared->second, shared->uuid),
                     kUseGloo);
  }
  return wanted;
}

}  // namespace

AllreduceWish own_wish(Allreduce wanted, std::span<const torch::Device> devices) {
  AllreduceWish wish{.wanted = std::string(name_of(kAllreduceNames, wanted)),
                     .nccl_problem = nccl_words(nccl_problem(devices))};
  for (const auto& device : devices) {
    if (device.is_cpu()) continue;
    wish.gpus.push_back({.uuid = device.is_cuda() ? cuda_uuid(device.index()) : std::string(),
                         .place = fmt::format("{} {}", own_host_name(), device.str())});
  }
  return wish;
}

// One line each: the choice, NCCL's problem, the devices.
std::string text_of_wish(const AllreduceWish& wish) {
  auto text = fmt::format("{}\n{}\n", wish.wanted, wish.nccl_problem);
  for (const auto& gpu : wish.gpus) text += fmt::format("{}\t{}\n", gpu.uuid, gpu.place);
  return text;
}

AllreduceWish read_wish(const std::string& text) {
  std::istringstream in(text);
  AllreduceWish wish;
  std::getline(in, wish.wanted);
  std::getline(in, wish.nccl_problem);
  for (NamedGpu gpu; std::getline(in, gpu.uuid, '\t') && std::getline(in, gpu.place);) {
    wish.gpus.push_back(gpu);
  }
  return wish;
}

Allreduce choose_for_all(Allreduce wanted, const std::vector<AllreduceWish>& wishes) {
  check_wanted_alike(wishes);
  switch (wanted) {
    case Allreduce::kAuto:
    case Allreduce::kNccl:
      return nccl_or_gloo(wanted, wishes);
    case Allreduce::kGloo:
      return wanted;
    default:
      throw UsageError(fmt::format("allreduce {} sums within one process, but there are {} processes",
                                   name_of(kAllreduceNames, wanted), wishes.size()),
                       "use allreduce gloo or auto");
  }
}

}  // namespace lockstep
