#include <lockstep/parallel/training/replica.h>

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <exception>
#include <limits>
#include <utility>

#include <lockstep/parallel/timing/trace.h>
#include <lockstep/parallel/training/model_errors.h>
#include <lockstep/parallel/training/outcome_sums.h>
#include <lockstep/parallel/training/replica_models.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/row_numbers.h>

namespace lockstep {

Replica::Replica(const Model& model, Endpoint& endpoint, std::shared_ptr<const BatchSource> source,
                 const ReplicaOptions& options, Endpoint* statistics)
    : options_(options),
      model_(model),
      endpoint_(endpoint),
      source_(std::move(source)),
      batches_(std::make_shared<const BatchSpec>(source_->spec())),
      sync_(endpoint, options.sync, options.trace),
      optimizer_(make_optimizer(options.optimizer, endpoint.device())),
      average_(options.ema > 0 ? std::optional<WeightAverage>(options.ema) : std::nullopt),
      loss_scale_(options.precision == Precision::kFp16
                      ? std::optional<LossScale>(std::in_place, options.loss_scale, endpoint.device())
                      : std::nullopt),
      captured_(capture_options(statistics != nullptr), captured_parts()) {
  const auto device = endpoint_.device();
  require_memory_of_their_own(*model_.module);
  move_module(*model_.module, device, dtype_of(options_.precision));
  // Parts that are in eval mode alone stay so, such as frozen batch norms.
  if (!model_.module->is_training()) model_.module->train();
  modes_ = TrainingModes(*model_.module);
  sync_.attach(*model_.module);
  if (statistics) norm_sync_.emplace(*model_.module, *statistics, options.trace);
  hold_parameters();
  const auto on_device = torch::TensorOptions(torch::kFloat64).device(device);
  sums_ = torch::zeros({sum_count(model_) + 1}, on_device);
  number_ = torch::zeros({}, on_device);
  never_ = torch::full({}, std::numeric_limits<double>::infinity(), on_device);
  reset_sums();
  if (options_.trace && !device.is_cpu()) clock_.emplace(current_stream(device), *options_.trace);
}

CaptureOptions Replica::capture_options(bool exchanges_statistics) const {
  const bool each_step_is_watched = options_.invariant || options_.wait_for_device || options_.trace;
  // Also whether a step is skipped.
  const bool counts_on_host = options_.optimizer.factory || options_.precision == Precision::kFp16;
  // Parts are captured on request alone: kernel by kernel they travel while the next ones are updated.
  const bool fetches = shares_updates() && options_.cuda_graph != CudaGraph::kOn;
  const bool exchanges = exchanges_statistics || fetches;
  return {.device = endpoint_.device(),
          .batches = batches_,
          .mode = each_step_is_watched || counts_on_host || exchanges ? CudaGraph::kOff : options_.cuda_graph,
          .alone = alone(),
          .notice = options_.notice};
}

StepParts Replica::captured_parts() {
  const bool gather_is_captured = captures_gather();
  return {.gather = gather_is_captured ? std::function<void(StepShape&)>()
                                       : [this](StepShape& shape) { gather_in_place(shape); },
          .compute =
              [this, gather_is_captured](StepShape& shape) {
                const auto no_sync =
                    sync_.no_sync();  // a replay runs no hooks: sync_.allreduce_all() follows it
                if (gather_is_captured) gather(shape);
                forward_backward(shape);
                sync_.take_gradients();
                if (alone()) update();
              },
          .sync =
              [this] {
                sync_.restore_views();  // the replayed graph has written to the flat buffer
                sync_.allreduce_all();
              },
          .update = [this] { update(); },
          .fetch = [this] { fetch_all(); }};
}

StepTimestamps Replica::step(const ReplicaStep& step) {
  const ReplicaRandom random(step.seed, step.number, endpoint_.rank());
  auto& shape = captured_.shape_of(step.batch_rows, step.micro_batches);
  const auto start = StepTimestamps::now();
  // Before anything is posted; and a replayed step looks neither at the parameters nor at train() and eval().
  require_held_parameters();
  if (modes_.changed()) {
    captured_.drop_graphs();
    modes_ = TrainingModes(*model_.module);
  }
  prepare(step, shape);
  auto times = compute(shape);
  times.start = start;
  bound_queue();
  ++next_number_;
  for (const auto rows : step.micro_batches) rows_trained_ += static_cast<int64_t>(rows.size());
  return times;
}

StepTimestamps Replica::compute(StepShape& shape) try {
  const auto replayed = captured_.replay(shape);
  return replayed ? *replayed : step_eagerly(shape);
} catch (const std::exception&) {
  // An error that has ended the collectives already, as a bucket hook's does, may be another replica's.
  if (std::current_exception() == endpoint_.error()) throw;
  rethrow_at(place());
}

// For errors, in which steps count from 1.
std::string Replica::place() const {
  const auto* pass = phase_.ends_with("ward") ? " pass" : "";  // the forward pass
  return fmt::format("rank {} ({}): in the {}{} of step {}", endpoint_.rank(), endpoint_.device().str(),
                     phase_, pass, next_number_ + 1);
}

// Waits for an earlier step on the GPU. Otherwise the host would queue every step it has, and report late.
void Replica::bound_queue() {
  const auto device = endpoint_.device();
  if (device.is_cpu()) return;
  queued_.emplace_back(device.type()).record(current_stream(device));
  if (queued_.size() < static_cast<size_t>(options_.in_flight)) return;
  queued_.front().synchronize();
  queued_.pop_front();
}

// Writes all that differs between two steps of one shape to the device. A replayed step finds it there.
void Replica::prepare(const ReplicaStep& step, StepShape& shape) {
  for (size_t m = 0; m < shape.rows.size(); ++m) {
    upload_rows(step.micro_batches[m], source_->size(), endpoint_.device(), shape.rows[m]);
  }
  shape.epoch = step.epoch;
  optimizer_->set_lr(step.lr);
  if (step.number != next_number_) number_.fill_(static_cast<double>(step.number));
  next_number_ = step.number;
  if (!micro_shards_) return;
  generators_.clear();
  const auto first = static_cast<size_t>(endpoint_.rank()) * shape.rows.size();
  for (size_t m = 0; m < shape.rows.size(); ++m) {
    generators_.push_back(replica_generator(step.seed, step.number, static_cast<int>(first + m)));
  }
}

StepTimestamps Replica::step_eagerly(StepShape& shape) {
  StepTimestamps times;
  gather(shape);
  times.data = StepTimestamps::now();
  forward_backward(shape);  // in overlapped mode it also starts to sum the gradients
  times.compute = StepTimestamps::now();
  sync_gradients(shape);
  times.sync = StepTimestamps::now();
  update();
  fetch_all();
  times.update = StepTimestamps::now();
  captured_.count_eager_step(shape);
  return times;
}

void Replica::gather(StepShape& shape) {
  const auto in_trace = span("gather");
  for (size_t m = 0; m < shape.inputs.size(); ++m) {
    std::optional<ReplicaRandom> random;
    if (micro_shards_) random.emplace(generators_[m]);
    source_->gather(shape.rows[m], shape.epoch, shape.inputs[m]);
    require_rows(shape.inputs[m], *batches_, shape.rows[m].numel(), [this] { return place(); });
  }
  if (model_.weight) weigh(shape);
  wait_for_device();
}

// A collective, unless this replica is the only one. Before the first backward pass, so that no gradient is
// scaled afterwards.
void Replica::weigh(StepShape& shape) {
  const torch::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(shape.inputs.size());
  if (!shape.weights.defined()) {
    shape.weights = torch::zeros({count + 1}, torch::dtype(torch::kFloat64).device(endpoint_.device()));
  }
  for (size_t m = 0; m < shape.inputs.size(); ++m) {
    if (shape.inputs[m].rows() == 0) continue;  // 0 from the start
    const auto weight = model_.weight(shape.inputs[m]);
    require_usable_weight(weight, endpoint_.device(), [this] { return place(); });
    shape.weights[static_cast<int64_t>(m)].copy_(weight);
  }
  auto sum = shape.weights.narrow(0, 0, count).sum();
  if (endpoint_.world_size() > 1) endpoint_.allreduce_sum(sum).wait();
  shape.weights[count].copy_(sum);
}

// Into the memory that a captured step reads, also from a source that makes new tensors.
void Replica::gather_in_place(StepShape& shape) {
  const auto held = shape.inputs;
  gather(shape);
  for (size_t m = 0; m < held.size(); ++m) {
    for (size_t i = 0; i < held[m].size(); ++i) {
      if (!held[m][i].is_same(shape.inputs[m][i])) held[m][i].copy_(shape.inputs[m][i]);
    }
  }
  shape.inputs = held;
}

// The model's code runs here. If it gives a parameter other memory, torch may throw first.
void Replica::forward_backward(StepShape& shape) try {
  for (size_t m = 0; m < shape.inputs.size(); ++m) {
    std::optional<GradientSync::NoSync> no_sync;  // the last micro-batch completes the gradients
    if (micro_shards_ || m + 1 < shape.inputs.size()) no_sync.emplace(sync_);
    const bool has_rows = shape.inputs[m].rows() > 0;
    // Without rows there is nothing to compute, unless the other replicas wait for the statistics of zero
    // rows.
    const bool computes = has_rows || norm_sync_;
    std::optional<ReplicaRandom> random;
    if (micro_shards_) random.emplace(generators_[m]);
    if (micro_shards_) micro_shards_->begin();
    if (computes) forward_backward(shape, m);
    if (micro_shards_) micro_shards_->end(has_rows);
  }
  require_held_parameters();
  wait_for_device();
} catch (const std::exception&) {
  sync_.restore_views();  // frees gradients that lie in the memory of a capture that has failed
  require_held_parameters();
  throw;
}

// One micro-batch: adds its share of the gradient of the global batch's mean loss.
void Replica::forward_backward(StepShape& shape, size_t micro_batch) {
  const bool handed_over = hands_gradients_over(shape);
  if (handed_over) sync_.drop_gradients();  // before a loss_sum that has backward passes of its own
  Outcome outcome;
  {
    const auto in_trace = span("forward");
    const AutocastGuard autocast(options_.precision, endpoint_.device());
    outcome = model_.loss_sum(in_precision(shape.inputs[micro_batch], options_.precision));
    require_usable(outcome, model_.metrics, endpoint_.device(), /*trains=*/true, [this] { return place(); });
  }
  const auto in_trace = span("backward");
  if (!handed_over) sync_.restore_views();  // the user may have called zero_grad(), which drops them
  const auto loss = loss_scale_ ? loss_scale_->scaled(outcome.loss) : outcome.loss;
  if (!model_.weight) {
    auto& gradient = shape.loss_gradient;  // of loss / batch_rows, without that division
    if (!gradient.defined() || gradient.scalar_type() != loss.scalar_type()) {
      gradient = torch::full({}, 1. / static_cast<double>(shape.batch_rows), loss.options());
    }
    loss.backward(gradient);
    return add_to_sums(outcome, {});
  }
  (loss / shape.weights[-1]).backward();
  add_to_sums(outcome, shape.weights[static_cast<int64_t>(micro_batch)]);
}

void Replica::sync_gradients(const StepShape& shape) {
  if (micro_shards_) {
    micro_shards_->sum();
  } else if (shape.inputs.empty()) {
    sync_.allreduce_all();  // no rows: the gradients are zero since the last update
  } else {
    sync_.wait();
  }
  wait_for_device();
}

void Replica::add_to_sums(const Outcome& outcome, const torch::Tensor& weight) {
  const torch::NoGradGuard no_grad;
  if (add_on_gpu(outcome, weight, number_, sums_)) return;
  const auto sums = sums_of(outcome, weight);
  const auto bad = torch::where(torch::isfinite(sums[0]), never_, number_);
  sums_.narrow(0, 0, sums.numel()).add_(sums);
  auto first_bad = sums_[-1];
  torch::minimum_out(first_bad, first_bad, bad);
}

// In place: captured steps write to this memory.
void Replica::reset_sums() {
  sums_.zero_();
  sums_[-1].copy_(never_);
}

// Ends a phase on a GPU, too, so that its time and the shares of auto_split are right.
void Replica::wait_for_device() const {
  if (options_.wait_for_device && !endpoint_.device().is_cpu()) {
    current_stream(endpoint_.device()).synchronize();
  }
}

PhaseSpan Replica::span(const char* phase) {
  phase_ = phase;
  return {options_.trace, phase, endpoint_.rank(), Trace::Track::kCompute, clock_};
}

}  // namespace lockstep
