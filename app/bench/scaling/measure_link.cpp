#include <lockstep/app/bench/scaling/measure_link.h>

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include <lockstep/app/bench/allreduce/ranks.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

// Measures a tiny sum and one of all gradients, between n replicas or processes.
Link link_between(AllreduceRanks& ranks, int64_t gradient_bytes, int n, bool overlaps) {
  constexpr double kMostIterations = 20;
  constexpr double kRepetition = .2;  // of a repetition, about
  constexpr int kRepeats = 5;
  const auto seconds_of = [&](int64_t bytes) {
    ranks.set_count(bytes / static_cast<int64_t>(sizeof(float)));
    const auto iterations =
        static_cast<int>(std::clamp(kRepetition / ranks.seconds(0, 1), 1., kMostIterations));
    std::vector<double> seconds;
    seconds.reserve(kRepeats);
    for (int i = 0; i < kRepeats; ++i) seconds.push_back(ranks.seconds(0, iterations));
    return median(seconds);
  };
  const double small = seconds_of(sizeof(float));
  return measured_link(small, seconds_of(gradient_bytes), static_cast<double>(gradient_bytes), n, overlaps);
}

}  // namespace

Link measure_link(const TrainPlan& plan) {
  const auto device = plan.trainer.devices.front();
  const bool two_gpus = device.is_cuda() && cuda_devices().size() > 1;
  const auto other = two_gpus ? torch::Device(torch::kCUDA, device.index() == 0 ? 1 : 0) : device;
  const std::vector<torch::Device> devices{device, other};
  AllreduceRanks ranks(devices, replica_threads(plan.trainer),
                       {choose_allreduce(plan.trainer.allreduce, devices)});
  return link_between(ranks, plan.gradient_bytes(), 2, two_gpus);
}

Link measure_process_link(const TrainPlan& plan) {
  const auto& place = plan.world.place;
  AllreduceRanks ranks(plan.trainer.devices, replica_threads(plan.trainer), {plan.trainer.allreduce},
                       plan.world.process_group);
  const bool cores_sum = place.processes_on_host == place.processes && plan.trainer.devices.front().is_cpu();
  auto link = link_between(ranks, plan.gradient_bytes(), place.processes, !cores_sum);
  leave_together(plan.world);  // before the first process closes its connections
  link.name = fmt::format("measured between {} processes", place.processes);
  return link;
}

}  // namespace lockstep
