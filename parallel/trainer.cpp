#include <lockstep/parallel/trainer.h>

#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <lockstep/parallel/build_replicas.h>
#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/collectives/gather_tensors.h>
#include <lockstep/parallel/gradients/tensor_lines.h>
#include <lockstep/parallel/training/outcome_sums.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/parallel/training/replica.h>
#include <lockstep/parallel/training/replica_models.h>
#include <lockstep/parallel/training/shared_options.h>
#include <lockstep/parallel/training/split_tuner.h>
#include <lockstep/parallel/training/step_history.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/error.h>
#include <lockstep/support/quietly.h>
#include <lockstep/support/row_numbers.h>

namespace lockstep {
namespace {

constexpr int64_t kRareSteps = 50;  // so many steps with a number of rows are few

double seconds_between(StepTimestamps::Clock::time_point begin, StepTimestamps::Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// A phase ends when the slowest replica is done with it.
StepTimes slowest(const std::vector<StepTimestamps>& times) {
  auto last = times.front();
  for (const auto& replica : times) {
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

// Before other processes wait for this one.
TrainerOptions validated(TrainerOptions options, const ModelFactory& factory, const SourceFactory& train,
                         const TestSets& test) {
  require_factories(factory, train);
  if (test.begin() == test.end()) throw UsageError("there is no test set", "give one, or several by name");
  for (const auto& set : test) {
    require_factory_of_set(set.source, set.name);
    if (std::ranges::count(test, set.name, &TestSet::name) == 1) continue;
    throw UsageError(fmt::format("two test sets are named {}", set.name), "give each its own name");
  }
  options.validate();
  require_total_steps(options.lr);
  return options;
}

// Connects the replicas of all processes. Their number is then known, and the other options can be checked.
std::unique_ptr<Communicator> checked_communicator(const TrainerOptions& options) {
  auto communicator = make_communicator({.devices = options.devices,
                                         .threads = replica_threads(options),
                                         .algorithm = options.allreduce,
                                         .process_group = options.process_group,
                                         .compress = options.compress,
                                         .trace = options.replica.trace});
  agree(options.process_group.get(), "options", shared_option_lines(options),
        "give the trainers of all processes the same ones");
  options.validate(communicator->world_size());
  return communicator;
}

auto sources_by_name(std::span<const torch::Device> devices, const TestSets& sets) {
  std::vector<std::pair<std::string, std::vector<std::shared_ptr<const BatchSource>>>> sources;
  for (const auto& set : sets) sources.emplace_back(set.name, sources_for(devices, set.source));
  return sources;
}

}  // namespace

struct Trainer::StepInFlight {
  std::vector<int64_t> rows;
  std::vector<ReplicaStep> steps;     // one per replica of this process, on parts of rows
  std::vector<StepTimestamps> times;  // the same, each written by its replica
};

Trainer::Trainer(const ModelFactory& factory, const SourceFactory& train, const TestSets& test,
                 TrainerOptions options)
    : options_(validated(std::move(options), factory, train, test)),
      workers_(options_.devices, replica_threads(options_)),
      communicator_(checked_communicator(options_)),
      models_(build_replicas(workers_.size(), [&] { return new_model(factory); })),
      train_sources_(sources_for(options_.devices, train)),
      test_sources_(sources_by_name(options_.devices, test)),
      replicas_(options_.devices.size()),
      in_flight_(steps_in_flight(options_)),
      history_(std::make_unique<StepHistory>()) {
  require_separate_models(models_);
  if (options_.auto_split) tuner_ = std::make_unique<SplitTuner>(world_size());
  agree(options_.process_group.get(), "models", tensor_lines(*models_.front().module),
        "build the same model in all processes");
  agree_on_metrics();
  agree_on_batches();
  open_statistics();
  auto replica_options = options_.replica;
  replica_options.wait_for_device |= options_.auto_split;  // to time a GPU the host must wait for it
  replica_options.in_flight = in_flight_;
  replica_options.ema = options_.ema;
  replica_options.sync.shard = options_.shard;
  workers_.run(*communicator_, [&](int local, Endpoint& endpoint) {
    const auto i = static_cast<size_t>(local);
    replicas_[i] =
        std::make_unique<Replica>(models_[i], endpoint, train_sources_[i], replica_options,
                                  norm_communicator_ ? &norm_communicator_->endpoint(local) : nullptr);
  });
}

// With one replica its rows are the whole batch. Never NCCL: two of its communicators at work on one GPU can
// wait for each other.
void Trainer::open_statistics() {
  if (options_.bn != BnPolicy::kSync || !has_whole_batch_norms(*models_.front().module)) return;
  if (world_size() == 1) return;
  const bool one_process = world_size() == local_size();
  norm_communicator_ = make_communicator({.devices = options_.devices,
                                          .threads = replica_threads(options_),
                                          .algorithm = one_process ? Allreduce::kTwoShot : Allreduce::kGloo,
                                          .process_group = options_.process_group});
}

// Waits for the devices: what is queued on their streams still uses data and buffers that are freed here.
Trainer::~Trainer() {
  quietly([&] { wait_for_steps(0); });
  for (const auto& device : workers_.devices()) quietly([&] { synchronize_device(device); });
}

void Trainer::step(std::span<const int64_t> rows, int64_t epoch) {
  if (rows.empty()) throw UsageError("a batch of 0 rows cannot be trained on");
  if (epoch < 0) throw UsageError(fmt::format("epoch is {}", epoch), "epochs are counted from 0");
  require_rows_exist(rows, train_sources_.front()->size());
  follow_requires_grad();
  auto next = std::make_unique<StepInFlight>(
      StepInFlight{.rows = {rows.begin(), rows.end()}, .steps = {}, .times = {}});
  next->steps = replica_steps(next->rows, epoch);
  history_->add(rows, epoch, next->steps.front().lr);
  next->times.resize(next->steps.size());
  auto& step = *steps_in_flight_.emplace_back(std::move(next));
  start(step);
  rows_ += static_cast<int64_t>(rows.size());
  ++steps_taken_;
  // Until the shares are settled, each step's shares depend on the times of the step before.
  wait_for_steps(split_settled() ? in_flight_ - 1 : 0);
  require_useful_scale();
  if (options_.check_sync > 0 && steps_taken_ % options_.check_sync == 0) check_sync();
}

// A smaller batch, such as an epoch's last one, is rare at first: a search for the fastest algorithms of its
// shapes would not pay off.
void Trainer::start(StepInFlight& step) {
  const auto rows = step.rows.size();
  const bool smaller = !steps_of_rows_.empty() && rows < steps_of_rows_.rbegin()->first;
  const bool rare = ++steps_of_rows_[rows] <= kRareSteps && smaller && at::globalContext().benchmarkCuDNN();
  std::optional<NoConvolutionSearch> no_search;
  if (rare) {
    workers_.wait(0);
    no_search.emplace();
  }
  workers_.start(*communicator_, [this, &step](int local, Endpoint&) { step_replica(local, step); });
  if (rare) workers_.wait(0);
}

void Trainer::set_lr(std::optional<double> lr) {
  if (lr && !is_rate(*lr)) {
    throw UsageError(fmt::format("the learning rate cannot be {}", *lr),
                     "a learning rate is a number from 0");
  }
  lr_state_.fixed = lr;
}

// Runs in the replica's thread. If it throws, ReplicaWorkers ends the gradients' collectives; those of the
// batch norms are ended here.
void Trainer::step_replica(int local, StepInFlight& step) try {
  const auto i = static_cast<size_t>(local);
  step.times[i] = replicas_[i]->step(step.steps[i]);
} catch (...) {
  if (norm_communicator_) norm_communicator_->endpoint(local).abort(std::current_exception());
  throw;
}

// Waits until at most `in_flight` steps are in flight.
void Trainer::wait_for_steps(int in_flight) {
  workers_.wait(in_flight);
  for (; steps_in_flight_.size() > static_cast<size_t>(in_flight); steps_in_flight_.pop_front()) {
    times_ += slowest(steps_in_flight_.front()->times);
    if (!split_settled()) tune_split(*steps_in_flight_.front());
  }
}

StepTimes Trainer::take_times() {
  wait_for_steps(0);
  return std::exchange(times_, {});
}

void Trainer::synchronize() {
  wait_for_steps(0);
  workers_.synchronize();
}

// Every process sees the times of all ranks, and finds the same shares.
void Trainer::tune_split(const StepInFlight& step) {
  const auto measured = gather_over_ranks([&](size_t i) {
    int64_t rows = 0;
    for (const auto part : step.steps[i].micro_batches) rows += static_cast<int64_t>(part.size());
    const double seconds = seconds_between(step.times[i].start, step.times[i].compute);
    return torch::tensor({static_cast<double>(rows), seconds}, torch::kFloat64).to(workers_.devices()[i]);
  });
  std::vector<int64_t> rows;
  std::vector<double> seconds;
  for (int64_t rank = 0; rank < measured.size(0); ++rank) {
    rows.push_back(measured[rank][0].item<int64_t>());
    seconds.push_back(measured[rank][1].item<double>());
  }
  tuner_->observe(rows, seconds);
}

// Calls own(local) in each replica's thread for its (n) numbers, on its device. Returns those of all ranks,
// (world, n) on the host.
torch::Tensor Trainer::gather_over_ranks(const std::function<torch::Tensor(size_t local)>& own) {
  std::vector<torch::Tensor> gathered(replicas_.size());
  workers_.run(*communicator_, [&](int local, Endpoint& endpoint) {
    const auto i = static_cast<size_t>(local);
    gathered[i] = gather_tensors(own(i), endpoint);
  });
  const auto host = gathered.front().cpu();  // waits for the device, and so for all ranks
  throw_if_aborted();                        // after an aborted collective the numbers mean nothing
  return host;
}

TrainSums Trainer::take_sums() {
  wait_for_steps(0);
  require_same_history(CommonCall::kTakeSums);
  const auto sums = gather_over_ranks([&](size_t i) {
    auto own = replicas_[i]->sums().clone();
    replicas_[i]->reset_sums();
    return own;
  });
  const auto& model = models_.front();
  TrainSums total{zero_sums(model.metrics), {}};
  total.rows = std::exchange(rows_, 0);
  for (const auto& replica : replicas_) {  // all have skipped the same steps
    if (auto* scale = replica->loss_scale()) total.skipped = scale->take_skipped();
  }
  if (!model.weight) total.weight = static_cast<double>(total.rows);
  for (int rank = 0; rank < world_size(); ++rank) {
    const auto host = sums[rank].contiguous();
    add_sums(model, host.const_data_ptr<double>(), total);
    const double bad = host[-1].item<double>();
    if (!std::isfinite(bad)) continue;
    const auto step = static_cast<int64_t>(bad);
    if (!total.bad || step < total.bad->step) total.bad = {.step = step, .rank = rank};
  }
  return total;
}

void Trainer::throw_if_aborted() {
  for (auto* communicator : {communicator_.get(), norm_communicator_.get()}) {
    if (communicator) lockstep::throw_if_aborted(*communicator);
  }
}

}  // namespace lockstep
