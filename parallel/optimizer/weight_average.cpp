#include <lockstep/parallel/optimizer/weight_average.h>

#include <algorithm>
#include <exception>
#include <utility>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/gradients/flat_tensors.h>
#include <lockstep/support/load_tensors.h>

namespace lockstep {

void WeightAverage::hold(const std::vector<std::string>& names, const Params& params,
                         const torch::Tensor& flat) {
  const torch::NoGradGuard no_grad;
  WeightAverage next(decay_);  // if there is no memory for it, this one stays as it is
  next.names_ = names;
  next.params_ = params;
  next.trained_ = flat;
  if (averages_.defined()) next.averages_ = flat.clone();
  const auto before = tensors();
  for (const auto& [name, average] : next.tensors()) {
    const auto old =
        std::find_if(before.begin(), before.end(), [&](const auto& item) { return item.name == name; });
    if (old != before.end()) average.copy_(old->tensor);
  }
  names_.swap(next.names_);
  params_.swap(next.params_);
  std::swap(trained_, next.trained_);
  std::swap(averages_, next.averages_);
}

void WeightAverage::update() {
  const torch::NoGradGuard no_grad;
  if (averages_.defined()) {
    averages_.lerp_(trained_, 1 - decay_);
  } else {
    averages_ = trained_.clone();
  }
}

std::vector<NamedTensor> WeightAverage::tensors() const {
  return averages_.defined() ? named(averages_) : std::vector<NamedTensor>();
}

std::vector<NamedTensor> WeightAverage::expected() const { return named(trained_); }

std::vector<NamedTensor> WeightAverage::named(const torch::Tensor& flat) const {
  const auto views = views_of(flat, params_);
  std::vector<NamedTensor> result;
  for (size_t i = 0; i < views.size(); ++i) result.push_back({names_[i], views[i]});
  return result;
}

// In place: captured steps write to this memory.
bool WeightAverage::load(const std::vector<NamedTensor>& state, bool begun, Endpoint& endpoint) {
  const torch::NoGradGuard no_grad;
  const bool moves = begun != averages_.defined();
  if (!begun) {
    averages_.reset();
    return moves;
  }
  if (moves) averages_ = trained_.clone();
  if (endpoint.rank() == 0) {
    load_tensors(tensors(), state, {.name = "average", .parts = "parameters", .hint = {}});
  }
  endpoint.broadcast(averages_, 0).wait();
  return moves;
}

AveragesInPlace::AveragesInPlace(torch::Tensor params, const torch::Tensor& averages, torch::Tensor bf16)
    : params_(std::move(params)),
      bf16_(std::move(bf16)),
      trained_(params_.clone()),
      trained_bf16_(bf16_.defined() ? bf16_.clone() : torch::Tensor()) {
  const torch::NoGradGuard no_grad;
  params_.copy_(averages);
  if (bf16_.defined()) bf16_.copy_(averages);
}

AveragesInPlace::~AveragesInPlace() {
  try {
    const torch::NoGradGuard no_grad;
    params_.copy_(trained_);
    if (bf16_.defined()) bf16_.copy_(trained_bf16_);
  } catch (const std::exception&) {
    // The GPU has failed. Its weights are lost, and every later use of it throws.
  }
}

}  // namespace lockstep
