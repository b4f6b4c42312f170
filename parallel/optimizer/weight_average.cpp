#include <lockstep/parallel/optimizer/weight_average.h>

#include <exception>
#include <utility>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

void WeightAverage::hold(std::shared_ptr<const FlatOrder> order, const torch::Tensor& flat) {
  const torch::NoGradGuard no_grad;
  // If there is no memory for others, this one stays as it is.
  std::optional<PartBuffer> next;
  if (averages_) {
    next.emplace(order);
    next->read_from(flat);
    averages_->for_each([&](const NamedTensor& item) { next->take(item); });
  }
  order_ = std::move(order);
  trained_ = flat;
  averages_ = std::move(next);
}

void WeightAverage::update() {
  const torch::NoGradGuard no_grad;
  if (!averages_) {
    averages_.emplace(order_);
    return averages_->read_from(trained_);
  }
  for (size_t b = 0; b < order_->parts.count(); ++b) {
    const auto own = order_->parts.own(b);
    averages_->own(b).lerp_(trained_.slice(0, own.begin, own.end), 1 - decay_);
  }
}

std::vector<NamedTensor> WeightAverage::tensors() const {
  std::vector<NamedTensor> result;
  if (!averages_ || !order_->parts.whole()) return result;
  averages_->for_each([&](const NamedTensor& item) { result.push_back(item); });
  return result;
}

std::vector<NamedTensor> WeightAverage::host_copies(const TensorAllocator* memory) const {
  return averages_ ? averages_->host_copies({}, memory) : std::vector<NamedTensor>();
}

std::vector<NamedTensor> WeightAverage::expected() const {
  std::vector<NamedTensor> result;
  for (size_t i = 0; i < order_->names.size(); ++i) {
    result.push_back({order_->names[i], order_->params[i].detach()});
  }
  return result;
}

// In place: captured steps write to this memory.
bool WeightAverage::load(const std::vector<NamedTensor>& state, bool begun, Endpoint& endpoint) {
  const torch::NoGradGuard no_grad;
  const bool moves = begun != averages_.has_value();
  if (!begun) {
    averages_.reset();
    return moves;
  }
  if (moves) averages_.emplace(order_);
  averages_->load(state, {}, endpoint);
  return moves;
}

AveragesInPlace::AveragesInPlace(torch::Tensor params, const PartBuffer& averages, torch::Tensor bf16)
    : params_(std::move(params)),
      bf16_(std::move(bf16)),
      trained_(params_.clone()),
      trained_bf16_(bf16_.defined() ? bf16_.clone() : torch::Tensor()) {
  const torch::NoGradGuard no_grad;
  try {
    averages.write_to(params_);
  } catch (...) {  // a peer has failed: no destructor will run
    params_.copy_(trained_);
    throw;
  }
  if (bf16_.defined()) bf16_.copy_(params_);
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
