#include <lockstep/parallel/trainer.h>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/error.h>
#include <lockstep/support/stream.h>

namespace lockstep {
namespace {

double seconds_between(StepTimestamps::Clock::time_point begin, StepTimestamps::Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// A phase is over when the slowest replica is done with it.
StepTimes slowest(const std::vector<StepTimestamps>& moments) {
  auto last = moments.front();
  for (const auto& replica : moments) {
    last.start = std::min(last.start, replica.start);
    last.data = std::max(last.data, replica.data);
    last.compute = std::max(last.compute, replica.compute);
    last.sync = std::max(last.sync, replica.sync);
    last.update = std::max(last.update, replica.update);
  }
  return {.data = seconds_between(last.start, last.data),
          .compute = seconds_between(last.data, last.compute),
          .sync = seconds_between(last.compute, last.sync),
          .update = seconds_between(last.sync, last.update)};
}

// Cuts rows into parts of these sizes, in order.
std::vector<std::span<const int64_t>> cut(std::span<const int64_t> rows, const std::vector<int64_t>& sizes) {
  std::vector<std::span<const int64_t>> parts;
  for (const auto size : sizes) {
    parts.push_back(rows.first(static_cast<size_t>(size)));
    rows = rows.subspan(static_cast<size_t>(size));
  }
  return parts;
}

}  // namespace

int steps_in_flight(const TrainerOptions& options) {
  const auto& devices = options.devices;
  const bool gpu = std::any_of(devices.begin(), devices.end(), [](auto device) { return !device.is_cpu(); });
  return options.in_flight.value_or(gpu ? 2 : 1);
}

TrainSums& TrainSums::operator+=(const TrainSums& other) {
  loss += other.loss;
  top1 += other.top1;
  top5 += other.top5;
  rows += other.rows;
  if (!bad) bad = other.bad;
  return *this;
}

Trainer::Trainer(const ModelFactory& factory, const SourceFactory& train, const SourceFactory& test,
                 TrainerOptions options)
    : options_(std::move(options)),
      workers_(options_.devices, options_.threads),
      communicator_(make_communicator({.devices = options_.devices,
                                       .threads = options_.threads,
                                       .algorithm = options_.allreduce,
                                       .trace = options_.replica.trace})),
      train_sources_(sources_for(options_.devices, train)),
      test_sources_(sources_for(options_.devices, test)),
      replicas_(options_.devices.size()),
      in_flight_(steps_in_flight(options_)) {
  if (options_.auto_split) tuner_.emplace(world_size());
  if (options_.replica.invariant) check_invariant_world(world_size());
  build_models(factory);
  auto replica_options = options_.replica;
  replica_options.wait_for_device |= options_.auto_split;  // a GPU's time shows only when it is waited for
  replica_options.in_flight = in_flight_;
  workers_.run(*communicator_, [&](int rank, Endpoint& endpoint) {
    const auto i = static_cast<size_t>(rank);
    replicas_[i] = std::make_unique<Replica>(models_[i], endpoint, train_sources_[i], replica_options);
  });
}

void Trainer::build_models(const ModelFactory& factory) {
  models_.push_back(factory());
  auto generator = at::detail::getDefaultCPUGenerator();
  const auto state = generator.get_state();
  while (models_.size() < replicas_.size()) models_.push_back(factory());
  generator.set_state(state);
}

// What is queued on the GPUs reads data and writes buffers that are given back here, whatever stream it is
// on.
Trainer::~Trainer() {
  const auto quietly = [](const auto& action) {
    try {
      action();
    } catch (...) {  // nobody has asked how those steps went
    }
  };
  quietly([&] { land(0); });
  for (const auto& device : workers_.devices()) quietly([&] { synchronize_device(device); });
}

void Trainer::step(std::span<const int64_t> rows) {
  if (rows.empty()) throw UsageError("a batch of 0 rows cannot be trained on");
  Flight dealt{.rows = {rows.begin(), rows.end()}, .steps = {}, .moments = {}};
  dealt.steps = deal(dealt.rows);
  dealt.moments.resize(dealt.steps.size());
  auto& flight = flights_.emplace_back(std::move(dealt));
  workers_.start(*communicator_, [this, &flight](int rank, Endpoint&) {
    const auto i = static_cast<size_t>(rank);
    flight.moments[i] = replicas_[i]->step(flight.steps[i]);
  });
  rows_ += static_cast<int64_t>(rows.size());
  ++steps_taken_;
  // While shares are being found, each step is dealt by what the one before has shown.
  land(split_settled() ? in_flight_ - 1 : 0);
}

// Waits until at most so many steps are under way.
void Trainer::land(int under_way) {
  workers_.wait(under_way);
  for (; flights_.size() > static_cast<size_t>(under_way); flights_.pop_front()) {
    times_ += slowest(flights_.front().moments);
    if (tuner_) watch_split(flights_.front());
  }
}

StepTimes Trainer::take_times() {
  land(0);
  return std::exchange(times_, {});
}

void Trainer::synchronize() {
  land(0);
  workers_.synchronize();
}

std::vector<ReplicaStep> Trainer::deal(std::span<const int64_t> rows) const {
  const auto count = [](auto part) { return static_cast<int64_t>(part.size()); };
  std::vector<ReplicaStep> steps(
      replicas_.size(), {.micro_batches = {}, .batch_rows = count(rows), .lr = lr(), .number = steps_taken_});
  if (options_.replica.invariant) {
    const auto parts = cut(rows, shard_sizes(count(rows), kMicroShards));
    for (size_t m = 0; m < parts.size(); ++m) {
      steps[m * steps.size() / parts.size()].micro_batches.push_back(parts[m]);
    }
    return steps;
  }
  const auto shards = cut(rows, shard_sizes(count(rows), world_size(), split()));
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const auto part : cut(shards[i], shard_sizes(count(shards[i]), options_.accumulate))) {
      if (!part.empty()) steps[i].micro_batches.push_back(part);
    }
  }
  return steps;
}

void Trainer::watch_split(const Flight& flight) {
  std::vector<int64_t> rows;
  std::vector<double> seconds;
  for (size_t i = 0; i < flight.steps.size(); ++i) {
    int64_t own = 0;
    for (const auto part : flight.steps[i].micro_batches) own += static_cast<int64_t>(part.size());
    rows.push_back(own);
    seconds.push_back(seconds_between(flight.moments[i].start, flight.moments[i].compute));
  }
  tuner_->observe(rows, seconds);
}

TrainSums Trainer::take_sums() {
  land(0);
  std::vector<torch::Tensor> sums;
  for (const auto& replica : replicas_) sums.push_back(replica->sums().cpu());  // waits for the replica
  throw_if_aborted();  // or they are of gradients that were never summed
  TrainSums total{.rows = std::exchange(rows_, 0), .bad = {}};
  for (int rank = 0; rank < world_size(); ++rank) {
    const auto& host = sums[static_cast<size_t>(rank)];
    total.loss += host[0].item<double>();
    total.top1 += host[1].item<int64_t>();
    total.top5 += host[2].item<int64_t>();
    const double bad = host[3].item<double>();
    if (!std::isfinite(bad)) continue;
    const auto step = static_cast<int64_t>(bad);
    if (!total.bad || step < total.bad->step) total.bad = {.step = step, .rank = rank};
  }
  workers_.run([&](int rank) { replicas_[static_cast<size_t>(rank)]->reset_sums(); });
  return total;
}

// For those who have waited for the GPUs: a collective that failed there has not told its own caller.
void Trainer::throw_if_aborted() {
  if (const auto error = communicator_->endpoint(0).error()) std::rethrow_exception(error);
}

void Trainer::with_shared_buffers(const std::function<void()>& action) {
  land(0);
  std::vector<std::unique_ptr<SharedBuffers>> shared(replicas_.size());
  // In the replicas' threads, whose streams their memory belongs to.
  const auto end = [&] { workers_.run([&](int rank) { shared[static_cast<size_t>(rank)].reset(); }); };
  try {
    workers_.run(*communicator_, [&](int rank, Endpoint& endpoint) {
      const auto i = static_cast<size_t>(rank);
      shared[i] = std::make_unique<SharedBuffers>(*models_[i].module, endpoint, options_.bn,
                                                  replicas_[i]->rows_trained());
    });
    action();  // waits for the GPUs
    throw_if_aborted();
  } catch (...) {
    try {
      end();
    } catch (const std::exception&) {  // the first error is the one to tell
    }
    throw_if_aborted();  // or what an aborted collective left was found to be no number
    throw;
  }
  end();
}

Evaluation Trainer::evaluate(const EvaluationProgress& progress) {
  Evaluation result;
  with_shared_buffers([&] {
    result = lockstep::evaluate(models_, test_sources_, options_.replica.precision, workers_, progress);
  });
  return result;
}

std::vector<NamedTensor> Trainer::weights(int rank) {
  const torch::NoGradGuard no_grad;
  std::vector<NamedTensor> result;
  with_shared_buffers([&] {
    const auto& module = *model(rank).module;
    const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
      result.push_back({.name = name,
                        .tensor = torch::empty(tensor.sizes(), tensor.scalar_type()).copy_(tensor.detach())});
    };
    for (const auto& item : module.named_parameters()) add(item.key(), item.value());
    for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  });
  return result;
}

}  // namespace lockstep
