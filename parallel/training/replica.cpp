#include <lockstep/parallel/training/replica.h>

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <limits>

#include <lockstep/parallel/timing/trace.h>
#include <lockstep/parallel/training/replica_models.h>
#include <lockstep/support/classification.h>
#include <lockstep/support/error.h>
#include <lockstep/support/row_numbers.h>
#include <lockstep/support/stream.h>

namespace lockstep {
namespace {

StepTimestamps::Clock::time_point now() { return StepTimestamps::Clock::now(); }

// Steps that run as they are before one is recorded: libraries set themselves up and choose their kernels,
// the optimizer makes its buffers, torch's allocator finds its sizes.
constexpr int kEagerSteps = 3;

}  // namespace

Replica::Replica(const Model& model, Endpoint& endpoint, std::shared_ptr<const BatchSource> source,
                 const ReplicaOptions& options)
    : options_(options),
      model_(model),
      endpoint_(endpoint),
      source_(std::move(source)),
      sync_(endpoint, options.sync),
      optimizer_(options.optimizer, endpoint.device()) {
  const auto device = endpoint_.device();
  move_module(*model_.module, device, dtype_of(options_.precision));
  model_.module->train();
  sync_.attach(*model_.module);
  params_ = flatten_parameters(sync_.parameters(), sync_.layout());
  if (options_.precision == Precision::kBf16 && model_.use_bf16_weights) keep_bf16_weights();
  if (options_.invariant) {
    sync_.set_enabled(false);
    micro_shards_.emplace(*model_.module, sync_.flat_gradients(), endpoint_);
  }
  const auto on_device = torch::TensorOptions(torch::kFloat64).device(device);
  sums_ = torch::zeros({4}, on_device);
  number_ = torch::zeros({}, on_device);
  never_ = torch::full({}, std::numeric_limits<double>::infinity(), on_device);
  reset_sums();
  use_graphs_ = options_.cuda_graph != CudaGraph::kOff && StepGraph::available(device) &&
                !options_.invariant && !options_.wait_for_device && !options_.sync.trace;
  if (options_.sync.trace && !device.is_cpu()) clock_.emplace(current_stream(device), *options_.sync.trace);
}

// Written by the optimizer on its way, instead of converted by autocast in every step.
void Replica::keep_bf16_weights() {
  if (sync_.parameters().size() != model_.module->parameters().size())
    return;  // those that are frozen have none
  Params rounded;
  for (const auto& param : sync_.parameters()) rounded.push_back(param.detach().to(torch::kBFloat16));
  bf16_weights_ = flat_zeros_like(rounded, sync_.layout());
  for (size_t i = 0; i < rounded.size(); ++i) bf16_weights_.views[i].copy_(rounded[i]);
  model_.use_bf16_weights(bf16_weights_.views);
  optimizer_.keep_bf16_weights(bf16_weights_.flat);
}

StepTimestamps Replica::step(const ReplicaStep& step) {
  auto& shape = shape_of(step);
  const auto start = now();
  prepare(step, shape);
  auto moments = recorded(shape) ? step_by_graph(shape) : step_eagerly(shape);
  moments.start = start;
  bound_queue();
  ++next_number_;
  for (const auto rows : step.micro_batches) rows_trained_ += static_cast<int64_t>(rows.size());
  return moments;
}

// Or the host would run ahead of a GPU for as long as it has steps, and what it says of the last one would
// come late.
void Replica::bound_queue() {
  const auto device = endpoint_.device();
  if (device.is_cpu()) return;
  queued_.emplace_back(device.type()).record(current_stream(device));
  if (queued_.size() < static_cast<size_t>(options_.in_flight)) return;
  queued_.front().synchronize();
  queued_.pop_front();
}

Replica::Shape& Replica::shape_of(const ReplicaStep& step) {
  std::vector<int64_t> key{step.batch_rows};
  for (const auto rows : step.micro_batches) key.push_back(static_cast<int64_t>(rows.size()));
  auto& shape = shapes_[key];
  shape.batch_rows = step.batch_rows;
  shape.rows.resize(step.micro_batches.size());
  shape.inputs.resize(step.micro_batches.size());
  return shape;
}

// Hands over all that differs between two steps of one shape; what follows finds it on the device.
void Replica::prepare(const ReplicaStep& step, Shape& shape) {
  for (size_t m = 0; m < shape.rows.size(); ++m) {
    upload_rows(step.micro_batches[m], source_->size(), endpoint_.device(), shape.rows[m]);
  }
  optimizer_.set_lr(step.lr);
  if (step.number != next_number_) number_.fill_(static_cast<double>(step.number));
  next_number_ = step.number;
}

StepTimestamps Replica::step_eagerly(Shape& shape) {
  StepTimestamps moments;
  gather(shape);
  moments.data = now();
  forward_backward(shape, /*post_gradients=*/true);  // in overlapped mode gradients are on their way already
  moments.compute = now();
  sync_gradients(shape);
  moments.sync = now();
  update();
  moments.update = now();
  ++shape.eager_steps;
  ++eager_steps_;
  return moments;
}

StepTimestamps Replica::step_by_graph(Shape& shape) {
  StepTimestamps moments{.data = now()};
  shape.graph->replay();
  moments.compute = now();
  if (!alone()) sync_.reduce();
  moments.sync = now();
  if (!alone()) update_graph_->replay();
  moments.update = now();
  return moments;
}

// Whether this shape has a graph, which is recorded here when its time has come. Recording runs nothing.
bool Replica::recorded(Shape& shape) {
  if (!use_graphs_ || shape.inputs.empty()) return false;
  if (shape.graph) return true;
  if (shape.eager_steps == 0 || eager_steps_ < kEagerSteps) return false;
  try {
    record(shape);
  } catch (const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    const auto why =
        fmt::format("a step on {} cannot be recorded as a CUDA graph: {}", endpoint_.device().str(),
                    torch_error ? torch_error->what_without_backtrace() : error.what());
    if (options_.cuda_graph == CudaGraph::kOn) throw FailedError(why, "use --cuda-graph auto or off");
    if (options_.notice) options_.notice(why + "; it is queued kernel by kernel");
    use_graphs_ = false;
    for (auto& [key, other] : shapes_)
      other.graph.reset();  // none is replayed any more: their memory is needed
    update_graph_.reset();
  }
  return use_graphs_;
}

void Replica::record(Shape& shape) {
  const StepGraph* neighbour = nullptr;  // one pool for all: they are replayed one after the other
  for (const auto& [key, other] : shapes_) {
    if (other.graph) neighbour = other.graph.get();
  }
  const auto compute = [&] {
    gather(shape);
    forward_backward(shape, /*post_gradients=*/false);
    if (alone()) update();
  };
  shape.graph = std::make_unique<StepGraph>(compute, neighbour);
  if (!alone() && !update_graph_)
    update_graph_ = std::make_unique<StepGraph>([&] { update(); }, shape.graph.get());
}

void Replica::gather(Shape& shape) {
  const PhaseSpan span(options_.sync.trace, "gather", endpoint_.rank(), Trace::Track::kCompute, clock_);
  for (size_t m = 0; m < shape.inputs.size(); ++m) source_->gather(shape.rows[m], shape.inputs[m]);
  wait_for_device();
}

// Hooks run when backward is recorded, not when it is replayed: in a recording nothing may be posted.
void Replica::forward_backward(Shape& shape, bool post_gradients) {
  const auto& inputs = shape.inputs;
  for (size_t m = 0; m < inputs.size(); ++m) {
    const bool has_rows = inputs[m].y.size(0) > 0;
    if (micro_shards_)
      micro_shards_->begin();
    else
      sync_.set_enabled(post_gradients &&
                        m + 1 == inputs.size());  // earlier micro-batches only add to the gradients
    if (has_rows) {
      Outcome outcome;
      {
        const PhaseSpan span(options_.sync.trace, "forward", endpoint_.rank(), Trace::Track::kCompute,
                             clock_);
        const AutocastGuard autocast(options_.precision, endpoint_.device());
        outcome = model_.loss_sum({.X = inputs[m].X.to(dtype_of(options_.precision)), .y = inputs[m].y});
      }
      const PhaseSpan span(options_.sync.trace, "backward", endpoint_.rank(), Trace::Track::kCompute, clock_);
      // A share of the whole batch's mean: shards of any size add up to its gradient.
      (outcome.loss / shape.batch_rows).backward();
      add_to_sums(outcome);
    }
    if (micro_shards_) micro_shards_->end(has_rows);
  }
  wait_for_device();
}

void Replica::sync_gradients(Shape& shape) {
  if (micro_shards_) {
    micro_shards_->reduce();
  } else if (shape.inputs.empty()) {
    sync_.reduce();  // no rows: zeros, as the last update left them
  } else {
    sync_.wait();
  }
  wait_for_device();
}

void Replica::update() {
  const PhaseSpan span(options_.sync.trace, "update", endpoint_.rank(), Trace::Track::kCompute, clock_);
  auto& gradients = sync_.flat_gradients();
  torch::Tensor scale;
  if (options_.clip_norm > 0) scale = clip_scale(gradients, options_.clip_norm);
  optimizer_.step(params_.flat, gradients, scale);
  number_.add_(1);
  wait_for_device();
}

void Replica::add_to_sums(const Outcome& outcome) {
  const torch::NoGradGuard no_grad;
  const auto sums = sums_of(outcome);  // (3)
  const auto bad = torch::where(torch::isfinite(sums[0]), never_, number_);
  sums_.narrow(0, 0, 3).add_(sums);
  auto first_bad = sums_[3];
  torch::minimum_out(first_bad, first_bad, bad);
}

// In place: graphs write to this memory.
void Replica::reset_sums() {
  sums_.zero_();
  sums_[3].copy_(never_);
}

void Replica::wait_for_device() const {
  // The host is to see how long the GPU takes, for a split by timing.
  if (options_.wait_for_device && !endpoint_.device().is_cpu()) {
    current_stream(endpoint_.device()).synchronize();
  }
}

}  // namespace lockstep
