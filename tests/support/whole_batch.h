// The same training with plain torch on one device: one module, the whole batch, torch's optimizer.
#pragma once

#include <ATen/Parallel.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/types.h>

namespace lockstep::testing {

// Synthetic rows, all different. Counts how often each row was gathered.
class RowSource : public BatchSource {
 public:
  explicit RowSource(int64_t rows)
      : X_((torch::arange(rows * 784, torch::kFloat64).mul(37).remainder(251) / 251)
               .view({rows, 1, 28, 28})
               .to(torch::kFloat32)),
        y_(torch::arange(rows).mul(3).remainder(10)) {}

  int64_t size() const override { return X_.size(0); }

  BatchSpec spec() const override { return all().spec(); }

  void gather(const torch::Tensor& rows, int64_t /*epoch*/, Batch& into) const override {
    const std::span numbers(rows.const_data_ptr<int64_t>(), static_cast<size_t>(rows.numel()));
    into = batch(numbers);
    const std::lock_guard lock(mutex_);
    for (const auto row : numbers) ++asked_[row];
  }

  Batch batch(std::span<const int64_t> rows) const {
    const auto index = torch::tensor(at::ArrayRef<int64_t>(rows.data(), rows.size()), torch::kInt64);
    return {X_.index_select(0, index), y_.index_select(0, index)};
  }

  Batch all() const { return {X_, y_}; }

  std::map<int64_t, int> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  torch::Tensor X_, y_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, int> asked_;
};

inline SourceFactory source(std::shared_ptr<RowSource> rows) {
  return [rows](torch::Device) { return rows; };
}

// One module in double, trained on whole batches in the calling thread.
class WholeBatch {
 public:
  WholeBatch(const ModelFactory& factory, torch::optim::SGDOptions options)
      : model_(factory()),
        sgd_((at::set_num_threads(1), model_.module->to(torch::kFloat64), model_.module->parameters()),
             options) {}

  // Returns the gradient of the mean loss over these rows.
  Params step(const Batch& rows) {
    sgd_.zero_grad();
    const auto loss = model_.loss_sum(in_precision(rows, Precision::kFp64)).loss;
    (loss / rows.rows()).backward();
    loss_sum_ += loss.item<double>();
    Params gradients;
    for (const auto& param : model_.module->parameters()) gradients.push_back(param.grad().clone());
    sgd_.step();
    return gradients;
  }

  const torch::nn::Module& module() const { return *model_.module; }
  torch::optim::SGD& optimizer() { return sgd_; }
  double loss_sum() const { return loss_sum_; }

 private:
  Model model_;
  torch::optim::SGD sgd_;
  double loss_sum_ = 0;
};

}  // namespace lockstep::testing
