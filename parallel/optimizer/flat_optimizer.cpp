#include <lockstep/parallel/optimizer/flat_optimizer.h>

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/optimizer/flat_sgd.h>
#include <lockstep/parallel/training/replica_state.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/load_tensors.h>
#include <lockstep/support/tensor_data.h>

namespace lockstep {
namespace {

// Before the parameters' names, in the order of the moments.
std::vector<std::string> moment_names(OptimizerKind kind) {
  if (kind == OptimizerKind::kSgd) return {"momentum_buffer."};
  return {"exp_avg.", "exp_avg_sq."};
}

bool is_step(const NamedTensor& kept) { return kept.name == "step" || kept.name.starts_with("step."); }

}  // namespace

bool counts_steps_by_parameter(const std::vector<NamedTensor>& state) {
  return std::any_of(state.begin(), state.end(),
                     [](const auto& kept) { return is_step(kept) && kept.name != "step"; });
}

// The tensors for torch's fused kernels: one per range, or with steps counted by parameter per parameter.
struct FlatOptimizer::UpdateLists {
  std::vector<torch::Tensor> params, grads, first, second, steps;
};

FlatOptimizer::FlatOptimizer(const OptimizerOptions& options, torch::Device device)
    : options_(options), device_(device) {}

void FlatOptimizer::hold(TrainedParameters trained) {
  const torch::NoGradGuard no_grad;
  std::vector<NamedTensor> steps_before;
  if (!moments_.empty()) {
    count_steps_by_parameter(true);
    steps_before = steps();
  }
  const auto before = std::exchange(moments_, {});
  trained_ = std::move(trained);
  steps_.reset();
  make_groups();
  by_parameter_ = !before.empty();
  if (before.empty()) return;
  make_state();
  for (size_t i = 0; i < moments_.size(); ++i) {  // each rank has one bucket of it whole at a time
    before[i].for_each([&](const NamedTensor& item) { moments_[i].take(item); });
  }
  for (const auto& [name, count] : steps()) {
    const auto old = std::find_if(steps_before.begin(), steps_before.end(),
                                  [&](const auto& item) { return item.name == name; });
    if (old != steps_before.end()) count.copy_(old->tensor);
  }
  if (counts_alike()) count_steps_by_parameter(false);
}

void FlatOptimizer::make_groups() {
  groups_.clear();
  for (size_t i = 0; i < trained_.ranges.size(); ++i) {
    const auto& options = trained_.ranges[i].group;
    auto group = std::find_if(groups_.begin(), groups_.end(),
                              [&](const Group& other) { return other.options == options; });
    if (group == groups_.end()) {
      group = groups_.insert(group, Group{.options = options});
      group->ranges.resize(trained_.order->parts.count());
      if (!device_.is_cpu()) {
        group->device_lr =
            torch::full({}, lr_ * options.lr_factor, torch::TensorOptions(torch::kFloat64).device(device_));
      }
    }
    group->ranges[trained_.ranges[i].bucket].push_back(i);
  }
}

void FlatOptimizer::set_lr(double lr) {
  if (lr == lr_) return;
  lr_ = lr;
  for (auto& group : groups_) {
    if (group.device_lr.defined()) group.device_lr.fill_(lr * group.options.lr_factor);
  }
}

void FlatOptimizer::step(const torch::Tensor& scale) {
  const torch::NoGradGuard no_grad;
  make_state();
  if (steps_.defined()) steps_.add_(1);
  for (size_t bucket = 0; bucket < trained_.order->parts.count(); ++bucket) {
    for (const auto& group : groups_) update(group, bucket, scale);
    if (trained_.updated) trained_.updated(bucket);
  }
}

void FlatOptimizer::update(const Group& group, size_t bucket, const torch::Tensor& scale) {
  if (is_sgd() && !device_.is_cpu()) return update_on_gpu_by_sgd(group, bucket, scale);
  const auto& ranges = group.ranges[bucket];
  for (const auto i : ranges) trained_.ranges[i].scale_gradients(scale);
  update_by_torch(group, bucket);
  for (const auto i : ranges) trained_.ranges[i].end_update();
}

void FlatOptimizer::make_state() {
  if (!moments_.empty() || !keeps_moments()) return;
  // Momentum starts from zeros: m = momentum m + g makes the first m equal to g, as in torch.
  for (size_t i = 0; i < moment_names(options_.kind).size(); ++i) moments_.emplace_back(trained_.order);
  if (is_sgd()) return;
  const auto count = static_cast<int64_t>(trained_.order->names.size());
  steps_ = torch::zeros(by_parameter_ ? std::vector<int64_t>{count} : std::vector<int64_t>{},
                        torch::TensorOptions(torch::kFloat32).device(device_));
}

// Views of the counts.
std::vector<NamedTensor> FlatOptimizer::steps() const {
  if (!steps_.defined()) return {};
  if (!by_parameter_) return {{"step", steps_}};
  std::vector<NamedTensor> result;
  const auto steps = steps_.unbind();
  for (size_t i = 0; i < steps.size(); ++i) {
    result.push_back({"step." + trained_.order->names[i], steps[i]});
  }
  return result;
}

std::vector<NamedTensor> FlatOptimizer::host_copies(const TensorAllocator* memory) {
  const torch::NoGradGuard no_grad;
  make_state();
  std::vector<NamedTensor> result;
  for (size_t i = 0; i < moments_.size(); ++i) {
    const auto copies = moments_[i].host_copies(moment_names(options_.kind)[i], memory);
    result.insert(result.end(), copies.begin(), copies.end());
  }
  if (!memory) return result;
  const auto counts = lockstep::host_copies(steps(), *memory);
  result.insert(result.end(), counts.begin(), counts.end());
  return result;
}

std::vector<NamedTensor> FlatOptimizer::expected(const std::vector<NamedTensor>& state) {
  if (!keeps_moments()) return {};
  std::vector<NamedTensor> result;
  const auto& [params, names, parts, endpoint] = *trained_.order;
  for (const auto& moment : moment_names(options_.kind)) {
    for (size_t i = 0; i < params.size(); ++i) {
      // One number of memory: values do not matter.
      result.push_back(
          {moment + names[i], torch::empty({}, params[i].scalar_type()).expand(params[i].sizes())});
    }
  }
  if (is_sgd()) return result;
  if (!counts_steps_by_parameter(state)) {
    result.push_back({"step", torch::zeros({})});
    return result;
  }
  for (const auto& name : names) result.push_back({"step." + name, torch::zeros({})});
  return result;
}

// In place: captured steps read and write this memory.
void FlatOptimizer::load(const std::vector<NamedTensor>& state, Endpoint& endpoint) {
  make_state();
  for (size_t i = 0; i < moments_.size(); ++i) {
    moments_[i].load(state, moment_names(options_.kind)[i], endpoint);
  }
  if (!steps_.defined()) return;
  if (endpoint.rank() == 0) {
    std::vector<NamedTensor> counts;
    std::copy_if(state.begin(), state.end(), std::back_inserter(counts), is_step);
    load_tensors(steps(), counts, {.name = "optimizer", .parts = "tensors", .hint = {}});
  }
  endpoint.broadcast(steps_, 0).wait();
}

bool FlatOptimizer::count_steps_by_parameter(bool by_parameter) {
  if (std::exchange(by_parameter_, by_parameter) == by_parameter || !steps_.defined()) return false;
  const auto count = static_cast<int64_t>(trained_.order->names.size());
  steps_ = by_parameter ? steps_.repeat({count}) : steps_.max();
  return true;
}

std::vector<std::string> FlatOptimizer::lines() const {
  std::vector<std::string> lines;
  for (size_t i = 0; i < trained_.groups.size(); ++i) {
    const auto& group = trained_.groups[i];
    lines.push_back(fmt::format("{}: lr_factor {}, weight_decay {}", trained_.order->names[i],
                                group.lr_factor, group.weight_decay.value()));
  }
  return lines;
}

// Waits for a GPU.
bool FlatOptimizer::counts_alike() const {
  return !steps_.defined() || steps_.eq(steps_.max()).all().item<bool>();
}

void FlatOptimizer::update_on_gpu_by_sgd(const Group& group, size_t bucket, const torch::Tensor& scale) {
  const c10::DeviceGuard guard(device_);
  const FlatSgdOptions options{.momentum = options_.momentum,
                               .weight_decay = group.options.weight_decay.value(),
                               .nesterov = options_.nesterov};
  for (const auto i : group.ranges[bucket]) {
    const auto& range = trained_.ranges[i];
    const auto momentum = moments_.empty() ? torch::Tensor() : moments_[0].slice(bucket, range.place);
    const auto launch = [&]<class T>(T) {
      const FlatSgdBuffers<T> buffers{.params = data_or_null<T>(range.params),
                                      .grads = data_or_null<T>(range.grads),
                                      .momentum = data_or_null<T>(momentum),
                                      .bf16 = data_or_null<Bf16>(range.bf16),
                                      .size = range.params.numel()};
      flat_sgd(buffers, options, group.device_lr.const_data_ptr<double>(), data_or_null<T>(scale),
               native_stream(device_));
    };
    range.params.scalar_type() == torch::kFloat64 ? launch(double{}) : launch(float{});
  }
}

FlatOptimizer::UpdateLists FlatOptimizer::lists_of(const Group& group, size_t bucket) const {
  UpdateLists lists;
  // Elements [begin, end) of a range.
  const auto add = [&](const FlatRange& range, int64_t begin, int64_t end, const torch::Tensor& steps) {
    if (begin == end) return;
    const bool is_all = end - begin == range.params.numel();
    lists.params.push_back(is_all ? range.params : range.params.slice(0, begin, end));
    lists.grads.push_back(is_all ? range.grads : range.grads.slice(0, begin, end));
    const FlatPart place{range.place.begin + begin, range.place.begin + end};
    if (!moments_.empty()) lists.first.push_back(moments_[0].slice(bucket, place));
    if (is_sgd()) return;
    lists.second.push_back(moments_[1].slice(bucket, place));
    lists.steps.push_back(steps);
  };
  for (const auto i : group.ranges[bucket]) {
    const auto& range = trained_.ranges[i];
    auto end = range.params.numel();
    if (is_sgd() || !by_parameter_) {
      add(range, 0, end, steps_);
      continue;
    }
    for (size_t k = 0; k < range.offsets.size(); ++k) {
      const auto begin = std::max<int64_t>(range.offsets[k], 0);
      add(range, begin, end, steps_[static_cast<int64_t>(range.first + k)]);
      end = begin;
    }
  }
  return lists;
}

void FlatOptimizer::update_by_torch(const Group& group, size_t bucket) {
  const auto lists = lists_of(group, bucket);
  if (lists.params.empty()) return;
  if (!is_sgd()) return update_by_adam(group, lists);
  at::_fused_sgd_(lists.params, lists.grads, lists.first, group.options.weight_decay.value(),
                  options_.momentum, lr_ * group.options.lr_factor,
                  /*dampening=*/0, options_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
}

void FlatOptimizer::update_by_adam(const Group& group, const UpdateLists& lists) {
  const auto update = [&](const auto& lr) {
    const auto fused = [&](const auto& kernel) {
      kernel(lists.params, lists.grads, lists.first, lists.second, /*max_exp_avg_sqs=*/at::TensorList(),
             lists.steps, lr, options_.beta1, options_.beta2, group.options.weight_decay.value(),
             options_.epsilon, /*amsgrad=*/false, /*maximize=*/false);
    };
    if (options_.kind == OptimizerKind::kAdam) {
      fused([](const auto&... args) { at::_fused_adam_(args...); });
    } else {
      fused([](const auto&... args) { at::_fused_adamw_(args...); });
    }
  };
  if (group.device_lr.defined()) {
    update(group.device_lr.to(torch::kFloat32));  // torch's kernel reads a float
  } else {
    update(lr_ * group.options.lr_factor);
  }
}

}  // namespace lockstep
