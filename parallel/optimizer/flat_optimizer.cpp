#include <lockstep/parallel/optimizer/flat_optimizer.h>

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/gradients/flat_tensors.h>
#include <lockstep/parallel/optimizer/flat_sgd.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/load_tensors.h>
#include <lockstep/support/tensor_data.h>

namespace lockstep {
namespace {

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
  std::vector<NamedTensor> before;
  if (!moments_.empty()) {
    count_steps_by_parameter(true);
    before = tensors();
  }
  trained_ = std::move(trained);
  moments_.clear();
  steps_.reset();
  make_groups();
  by_parameter_ = !before.empty();
  if (before.empty()) return;
  for (const auto& [name, kept] : tensors()) {
    const auto old =
        std::find_if(before.begin(), before.end(), [&](const auto& item) { return item.name == name; });
    if (old != before.end()) kept.copy_(old->tensor);
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
      if (!device_.is_cpu()) {
        group->device_lr =
            torch::full({}, lr_ * options.lr_factor, torch::TensorOptions(torch::kFloat64).device(device_));
      }
    }
    group->ranges.push_back(i);
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
  for (const auto& group : groups_) {
    if (is_sgd() && !device_.is_cpu()) {
      update_on_gpu_by_sgd(group, scale);
      continue;
    }
    for (const auto i : group.ranges) trained_.ranges[i].scale_gradients(scale);
    update(group);
    for (const auto i : group.ranges) trained_.ranges[i].end_update();
  }
}

void FlatOptimizer::make_state() {
  if (!moments_.empty() || (is_sgd() && options_.momentum == 0)) return;
  for (const auto& range : trained_.ranges) {
    // Momentum starts from zeros: m = momentum m + g makes the first m equal to g, as in torch.
    moments_.push_back({.first = torch::zeros_like(range.params),
                        .second = is_sgd() ? torch::Tensor() : torch::zeros_like(range.params)});
  }
  if (is_sgd()) return;
  const auto count = static_cast<int64_t>(trained_.names.size());
  steps_ = torch::zeros(by_parameter_ ? std::vector<int64_t>{count} : std::vector<int64_t>{},
                        torch::TensorOptions(torch::kFloat32).device(device_));
}

std::vector<NamedTensor> FlatOptimizer::tensors() {
  const torch::NoGradGuard no_grad;
  make_state();
  std::vector<NamedTensor> result;
  const auto add = [&](const FlatRange& range, const char* kind, const torch::Tensor& flat) {
    const auto begin = trained_.params.begin() + static_cast<std::ptrdiff_t>(range.first);
    const auto end = begin + static_cast<std::ptrdiff_t>(range.offsets.size());
    const auto views = views_of(flat, Params(begin, end));
    for (size_t i = 0; i < views.size(); ++i) {
      result.push_back({std::string(kind) + "." + trained_.names[range.first + i], views[i]});
    }
  };
  for (size_t i = 0; i < moments_.size(); ++i) {
    const auto& range = trained_.ranges[i];
    add(range, is_sgd() ? "momentum_buffer" : "exp_avg", moments_[i].first);
    if (!is_sgd()) add(range, "exp_avg_sq", moments_[i].second);
  }
  if (!steps_.defined()) return result;
  if (!by_parameter_) {
    result.push_back({"step", steps_});
    return result;
  }
  const auto steps = steps_.unbind();
  for (size_t i = 0; i < steps.size(); ++i) result.push_back({"step." + trained_.names[i], steps[i]});
  return result;
}

std::vector<NamedTensor> FlatOptimizer::expected(const std::vector<NamedTensor>& state) {
  auto result = tensors();
  if (std::erase_if(result, is_step) == 0) return result;
  if (!counts_steps_by_parameter(state)) {
    result.push_back({"step", torch::zeros({})});
    return result;
  }
  for (const auto& name : trained_.names) result.push_back({"step." + name, torch::zeros({})});
  return result;
}

// In place: captured steps read and write this memory.
void FlatOptimizer::load(const std::vector<NamedTensor>& state, Endpoint& endpoint) {
  const auto own = tensors();
  if (endpoint.rank() == 0) {
    load_tensors(own, state, {.name = "optimizer", .parts = "tensors", .hint = {}});
  }
  for (const auto& [first, second] : moments_) {
    endpoint.broadcast(first, 0).wait();
    if (second.defined()) endpoint.broadcast(second, 0).wait();
  }
  if (steps_.defined()) endpoint.broadcast(steps_, 0).wait();
}

bool FlatOptimizer::count_steps_by_parameter(bool by_parameter) {
  if (std::exchange(by_parameter_, by_parameter) == by_parameter || !steps_.defined()) return false;
  const auto count = static_cast<int64_t>(trained_.names.size());
  steps_ = by_parameter ? steps_.repeat({count}) : steps_.max();
  return true;
}

std::vector<std::string> FlatOptimizer::lines() const {
  std::vector<std::string> lines;
  for (const auto& range : trained_.ranges) {
    for (size_t i = 0; i < range.offsets.size(); ++i) {
      lines.push_back(fmt::format("{}: lr_factor {}, weight_decay {}", trained_.names[range.first + i],
                                  range.group.lr_factor, range.group.weight_decay.value()));
    }
  }
  return lines;
}

// Waits for a GPU.
bool FlatOptimizer::counts_alike() const {
  return !steps_.defined() || steps_.eq(steps_.max()).all().item<bool>();
}

void FlatOptimizer::update_on_gpu_by_sgd(const Group& group, const torch::Tensor& scale) {
  const c10::DeviceGuard guard(device_);
  const FlatSgdOptions options{.momentum = options_.momentum,
                               .weight_decay = group.options.weight_decay.value(),
                               .nesterov = options_.nesterov};
  for (const auto i : group.ranges) {
    const auto& range = trained_.ranges[i];
    const auto launch = [&]<class T>(T) {
      const FlatSgdBuffers<T> buffers{
          .params = data_or_null<T>(range.params),
          .grads = data_or_null<T>(range.grads),
          .momentum = moments_.empty() ? nullptr : data_or_null<T>(moments_[i].first),
          .bf16 = data_or_null<Bf16>(range.bf16),
          .size = range.params.numel()};
      flat_sgd(buffers, options, group.device_lr.const_data_ptr<double>(), data_or_null<T>(scale),
               native_stream(device_));
    };
    range.params.scalar_type() == torch::kFloat64 ? launch(double{}) : launch(float{});
  }
}

FlatOptimizer::UpdateLists FlatOptimizer::lists_of(const Group& group) const {
  UpdateLists lists;
  const auto add = [&](size_t i, int64_t begin, int64_t end, const torch::Tensor& steps) {
    const auto& range = trained_.ranges[i];
    const auto part_of = [&](const torch::Tensor& all) {
      return end - begin == all.numel() ? all : all.slice(0, begin, end);
    };
    if (begin == end) return;
    lists.params.push_back(part_of(range.params));
    lists.grads.push_back(part_of(range.grads));
    if (!moments_.empty()) lists.first.push_back(part_of(moments_[i].first));
    if (is_sgd()) return;
    lists.second.push_back(part_of(moments_[i].second));
    lists.steps.push_back(steps);
  };
  for (const auto i : group.ranges) {
    const auto& range = trained_.ranges[i];
    auto end = range.params.numel();
    if (is_sgd() || !by_parameter_) {
      add(i, 0, end, steps_);
      continue;
    }
    for (size_t k = 0; k < range.offsets.size(); ++k) {
      const auto number = static_cast<int64_t>(range.first + k);
      add(i, range.offsets[k], end, steps_[number]);
      end = range.offsets[k];
    }
  }
  return lists;
}

void FlatOptimizer::update(const Group& group) {
  const auto lists = lists_of(group);
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
