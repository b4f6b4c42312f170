#include <lockstep/parallel/communicator.h>

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/collectives/allreduce/allreduce_choice.h>
#include <lockstep/parallel/collectives/host_communicator.h>
#include <lockstep/parallel/collectives/named_options.h>
#include <lockstep/parallel/collectives/nccl_communicator.h>
#include <lockstep/parallel/collectives/rank_layout.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

bool are_several(const ProcessGroup* group) { return group && group->world().processes > 1; }

// Sums between replicas, as all processes have agreed on them.
struct AgreedSums {
  Allreduce algorithm;
  RankLayout layout;
};

// All processes of the group call it.
AgreedSums agree_on_sums(Allreduce wanted, Compress compress, std::span<const torch::Device> devices,
                         ProcessGroup& group) {
  const Lines settings{fmt::format("allreduce {}", name_of(kAllreduceNames, wanted)),
                       fmt::format("compress {}", name_of(kCompressNames, compress))};
  std::vector<Lines> all_settings;
  std::vector<AllreduceSupport> supports;
  std::vector<int> replicas;
  for (const auto& told : gather_values(
           &group, "communicator",
           {{"settings", settings}, {"support", support_of(devices)}, {"replicas", devices.size()}})) {
    all_settings.push_back(told.at("settings").get<Lines>());
    supports.push_back(told.at("support").get<AllreduceSupport>());
    replicas.push_back(told.at("replicas").get<int>());
  }
  require_same(all_settings, "process", "communicators",
               "start all processes with the same program and options");
  return {choose_for_all(wanted, supports), RankLayout(replicas, group.world().process)};
}

// Process 0 makes the id and gives it to the others.
std::string shared_nccl_id(ProcessGroup* group) {
  if (!group) return make_nccl_id();
  using Bytes = std::vector<uint8_t>;
  const auto own = group->world().process == 0 ? make_nccl_id() : std::string();
  const auto first = gather_values(group, "NCCL id", Bytes(own.begin(), own.end())).front().get<Bytes>();
  return {first.begin(), first.end()};
}

// Throws UsageError where nothing is sent that could be compressed.
void check_compressible(const CommunicatorOptions& options) {
  if (options.compress == Compress::kNone) return;
  if (!options.process_group) refuse_compress_alone(options.compress);
  if (options.algorithm == Allreduce::kNccl) {
    throw UsageError(
        named_compress(options.compress) + " needs " + named_allreduce(Allreduce::kGloo) + ", but it is nccl",
        "use " + named_allreduce(Allreduce::kGloo) + ", or " + named_compress(Compress::kNone));
  }
}

}  // namespace

void throw_if_aborted(Communicator& communicator) {
  if (const auto error = communicator.endpoint(0).error()) std::rethrow_exception(error);
}

void Work::wait() {
  const auto next = std::exchange(next_, nullptr);
  if (done_.valid()) {
    if (const auto event = done_.get()) event->block(current_stream(event->device()));
  }
  if (next) next();
}

Work Work::then(std::function<void()> next) {
  Work result(std::move(done_));
  result.next_ = std::move(next);
  if (const auto first = std::exchange(next_, nullptr)) {
    result.next_ = [first, second = std::move(result.next_)] {
      first();
      second();
    };
  }
  return result;
}

// For communicators that have none of their own: the whole sum, which does no harm.
Work Endpoint::reduce_scatter(torch::Tensor tensor, PartBounds /*bounds*/) {
  return allreduce_sum(std::move(tensor));
}

Work Endpoint::gather_parts(torch::Tensor tensor, PartBounds bounds) {
  auto works = std::make_shared<std::vector<Work>>();
  const auto flat = tensor.detach().view({-1});
  for (int rank = 0; rank < world_size(); ++rank) {
    const auto begin = bounds[static_cast<size_t>(rank)], end = bounds[static_cast<size_t>(rank) + 1];
    if (begin < end) works->push_back(broadcast(flat.slice(0, begin, end), rank));
  }
  return Work().then([works] {
    for (auto& work : *works) work.wait();
  });
}

Allreduce choose_allreduce(Allreduce wanted, std::span<const torch::Device> devices, ProcessGroup* group) {
  if (are_several(group)) return agree_on_sums(wanted, Compress::kNone, devices, *group).algorithm;
  if (wanted == Allreduce::kGloo) {
    throw UsageError(named_allreduce(wanted) + " sums between processes, but this process is alone",
                     "use " + named_allreduce(Allreduce::kTwoShot) + " or auto, or start several processes");
  }
  if (wanted != Allreduce::kAuto && wanted != Allreduce::kNccl) return wanted;
  const auto problem = nccl_problem(devices);
  if (wanted == Allreduce::kNccl && problem) std::rethrow_exception(problem);
  return wanted == Allreduce::kNccl || (devices.size() > 1 && !problem) ? Allreduce::kNccl
                                                                        : Allreduce::kTwoShot;
}

std::unique_ptr<Communicator> make_communicator(CommunicatorOptions options) {
  if (options.devices.empty()) throw UsageError("a communicator needs at least one device");
  if (!are_several(options.process_group.get())) options.process_group = nullptr;
  const auto group = options.process_group;
  const auto replicas = static_cast<int>(options.devices.size());
  const auto [algorithm, layout] =
      group ? agree_on_sums(options.algorithm, options.compress, options.devices, *group)
            : AgreedSums{choose_allreduce(options.algorithm, options.devices), RankLayout({replicas}, 0)};
  options.algorithm = algorithm;
  if (!options.threads) options.threads = default_threads(replicas);
  check_compressible(options);
  if (options.algorithm != Allreduce::kNccl) return make_host_communicator(std::move(options), layout);
  return make_nccl_communicator({.devices = options.devices,
                                 .first_rank = layout.first_rank(),
                                 .world_size = layout.world_size(),
                                 .id = shared_nccl_id(group.get()),
                                 .timeout = group ? group->timeout() : kPeerTimeout,
                                 .trace = options.trace});
}

}  // namespace lockstep
