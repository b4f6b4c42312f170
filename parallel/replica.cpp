#include <lockstep/parallel/replica.h>

#include <torch/nn/module.h>

#include <limits>

#include <lockstep/parallel/replica_models.h>
#include <lockstep/parallel/replica_thread.h>
#include <lockstep/parallel/trace.h>
#include <lockstep/support/classification.h>

namespace lockstep {
namespace {

StepMoments::Clock::time_point now() { return StepMoments::Clock::now(); }

}  // namespace

Replica::Replica(const Model& model, Endpoint& endpoint, std::shared_ptr<const BatchSource> source,
                 const ReplicaOptions& options)
    : options_(options),
      model_(model),
      endpoint_(endpoint),
      source_(std::move(source)),
      sync_(endpoint, options.sync),
      optimizer_(options.optimizer) {
  move_module(*model_.module, endpoint_.device(), dtype_of(options_.precision));
  model_.module->train();
  sync_.attach(*model_.module);
  params_ = flatten_parameters(sync_.parameters(), sync_.layout());
  if (options_.invariant) {
    sync_.set_enabled(false);
    micro_shards_.emplace(*model_.module, sync_.flat_gradients(), endpoint_);
  }
  reset_sums();
}

StepMoments Replica::step(const ReplicaStep& step) {
  StepMoments moments{.start = now()};
  gather(step);
  moments.data = now();
  forward_backward(step);  // in overlapped mode gradients are on their way already
  moments.compute = now();
  sync_gradients();
  moments.sync = now();
  update(step.lr);
  moments.update = now();
  return moments;
}

void Replica::gather(const ReplicaStep& step) {
  const Trace::Span span(options_.sync.trace, "gather", endpoint_.rank());
  inputs_.resize(step.micro_batches.size());
  for (size_t m = 0; m < inputs_.size(); ++m) {
    source_->gather(step.micro_batches[m], inputs_[m]);
    rows_trained_ += static_cast<int64_t>(step.micro_batches[m].size());
  }
  wait_for_device();
}

void Replica::forward_backward(const ReplicaStep& step) {
  for (size_t m = 0; m < inputs_.size(); ++m) {
    const bool has_rows = inputs_[m].y.size(0) > 0;
    if (micro_shards_)
      micro_shards_->begin();
    else
      sync_.set_enabled(m + 1 == inputs_.size());  // earlier micro-batches only add to the gradients
    if (has_rows) {
      Outcome outcome;
      {
        const Trace::Span span(options_.sync.trace, "forward", endpoint_.rank());
        const AutocastGuard autocast(options_.precision, endpoint_.device());
        outcome = model_.loss_sum({.X = inputs_[m].X.to(dtype_of(options_.precision)), .y = inputs_[m].y});
      }
      const Trace::Span span(options_.sync.trace, "backward", endpoint_.rank());
      // A share of the whole batch's mean: shards of any size add up to its gradient.
      (outcome.loss / step.batch_rows).backward();
      add_to_sums(outcome, step.number);
    }
    if (micro_shards_) micro_shards_->end(has_rows);
  }
  wait_for_device();
}

void Replica::sync_gradients() {
  if (micro_shards_) {
    micro_shards_->reduce();
  } else if (inputs_.empty()) {
    sync_.wait_without_rows();
  } else {
    sync_.wait();
  }
  wait_for_device();
}

void Replica::update(double lr) {
  const Trace::Span span(options_.sync.trace, "update", endpoint_.rank());
  auto& gradients = sync_.flat_gradients();
  if (options_.clip_norm > 0) clip_by_global_norm(gradients, options_.clip_norm);
  optimizer_.step(params_.flat, gradients, lr);
  gradients.zero_();
  wait_for_device();
}

void Replica::add_to_sums(const Outcome& outcome, int64_t step) {
  const torch::NoGradGuard no_grad;
  const auto sums = sums_of(outcome);  // (3)
  const auto never = std::numeric_limits<double>::infinity();
  const auto bad = torch::where(torch::isfinite(sums[0]), never, static_cast<double>(step));
  sums_.narrow(0, 0, 3).add_(sums);
  auto first_bad = sums_[3];
  torch::minimum_out(first_bad, first_bad, bad.to(torch::kFloat64));
}

void Replica::reset_sums() {
  sums_ = torch::zeros({4}, torch::TensorOptions(torch::kFloat64).device(endpoint_.device()));
  sums_[3] = std::numeric_limits<double>::infinity();
}

void Replica::wait_for_device() const {
  if (options_.wait_for_device && !endpoint_.device().is_cpu()) {
    current_stream(endpoint_.device()).synchronize();
  }
}

}  // namespace lockstep
