#include <lockstep/app/bench/scaling/lists.h>

#include <algorithm>

#include <lockstep/app/train/recipe.h>
#include <lockstep/parallel/threads/cpu_cores.h>

namespace lockstep {
namespace {

std::vector<Scaling> modes_of(const std::string& name) {
  if (name == "both") return {Scaling::kStrong, Scaling::kWeak};
  return {value_of(kScalingNames, name)};
}

}  // namespace

ScalingLists::ScalingLists(const BenchScalingOptions& options, std::vector<std::vector<torch::Device>> lists)
    : options_(options), lists_(std::move(lists)) {
  for (const auto& devices : lists_) longest_ = std::max(longest_, static_cast<int>(devices.size()));
  threads_ = threads_for(options_.bench, static_cast<size_t>(longest_));
}

ScalingCase ScalingLists::make_case(Scaling scaling, const std::vector<torch::Device>& devices,
                                    int64_t divisor) {
  const auto& recipe = find_recipe(options_.train.recipe);
  const int64_t times = scaling == Scaling::kWeak ? static_cast<int64_t>(devices.size()) : 1;
  BenchTrainOptions options = options_;
  const auto batch = options_.train.batch_size.value_or(recipe.batch_size);
  options.train.batch_size = std::max<int64_t>(1, batch / divisor) * times;
  options.train.lr =
      options_.train.lr.value_or(rate_of(recipe, options_.train.optimizer)) * static_cast<double>(times);
  options.train.epochs = options_.epochs.value_or(1);
  if (devices.size() == 1) options.train.split = "even";
  ScalingCase made{.scaling = scaling, .plan = plan_on(options, devices, threads_, data_)};
  data_ = made.plan.data;  // read once
  return made;
}

std::vector<ScalingCase> ScalingLists::cases() {
  const std::vector<torch::Device> first{lists_.front().front()};
  std::vector<ScalingCase> all{make_case(Scaling::kStrong, first)};
  for (const auto scaling : modes_of(options_.scaling)) {
    for (const auto& devices : lists_) {
      if (devices.size() > 1) all.push_back(make_case(scaling, devices));
    }
  }
  std::vector<torch::Device> alone = first;
  for (const auto& devices : lists_) {
    for (const auto device : devices) {
      if (std::find(alone.begin(), alone.end(), device) != alone.end()) continue;
      if (options_.train.split != "auto" && devices.size() > 1) continue;
      alone.push_back(device);
      all.push_back(make_case(Scaling::kStrong, {device}));
    }
  }
  return all;
}

std::vector<ScalingCase> ScalingLists::fractions() {
  std::vector<ScalingCase> all;
  const auto device = lists_.front().front();
  for (const int64_t divisor : {1, 2, 4}) {
    all.push_back(make_case(Scaling::kStrong, {device}, divisor));
    if (!device.is_cpu()) continue;
    all.back().background_load = std::max(0, std::min(longest_, replicas_with_own_cores()) - 1);
  }
  return all;
}

int ScalingLists::replicas_with_own_cores() const {
  return static_cast<int>(allowed_cores().size()) / threads_;
}

}  // namespace lockstep
