#include <lockstep/parallel/training/evaluation.h>

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <lockstep/parallel/collectives/gather_tensors.h>
#include <lockstep/parallel/replica_random.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/model_errors.h>
#include <lockstep/parallel/training/outcome_sums.h>
#include <lockstep/parallel/training/training_modes.h>
#include <lockstep/support/error.h>
#include <lockstep/support/row_numbers.h>

namespace lockstep {
namespace {

// A model that draws numbers here gets the same ones for a block on any replica, every time.
constexpr uint64_t kEvaluationSeed = 0;

// The blocks of a set. Rank r of the world takes the blocks r, r + world, ...
struct Blocks {
  int64_t rows = 0;  // of the set
  int world = 1;

  int64_t count() const { return (rows + kEvaluationBlock - 1) / kEvaluationBlock; }
  int64_t most_per_rank() const { return (count() + world - 1) / world; }
  int64_t size(int64_t block) const { return std::min(kEvaluationBlock, rows - block * kEvaluationBlock); }

  // The rows of the blocks of local_size() ranks from first_rank() on.
  int64_t rows_of(const Communicator& communicator) const {
    int64_t sum = 0;
    for (int64_t block = 0; block < count(); ++block) {
      const auto local = block % world - communicator.first_rank();
      if (local >= 0 && local < communicator.local_size()) sum += size(block);
    }
    return sum;
  }
};

// The sums of the rows with these numbers, on the device (outcome_sums.h). `into` is for them.
torch::Tensor evaluate_block(const Model& model, const BatchSource& source, const torch::Tensor& rows,
                             Precision precision, Batch& into, const BatchSpec& spec,
                             const std::string& place) try {
  source.gather(rows, /*epoch=*/0, into);
  require_rows(into, spec, rows.numel(), [&] { return place; });
  const AutocastGuard autocast(precision, rows.device());
  const auto outcome = model.loss_sum(in_precision(into, precision));
  require_usable(outcome, model.metrics, rows.device(), /*trains=*/false, [&] { return place; });
  if (!model.weight) return sums_of(outcome);
  const auto weight = model.weight(into);
  require_usable_weight(weight, rows.device(), [&] { return place; });
  return sums_of(outcome, weight.to(torch::kFloat64));
} catch (const std::exception&) {
  rethrow_at(place);
}

// Calls `progress` from the replicas' threads, and keeps its exception.
class ProgressReport {
 public:
  // rows: those that this process's replicas evaluate.
  ProgressReport(const EvaluationProgress& progress, int64_t rows) : progress_(progress), rows_(rows) {}

  bool stopped() const { return stopped_; }

  void add(int64_t rows) {
    const std::lock_guard lock(mutex_);
    done_ += rows;
    if (!progress_ || stopped_ || done_ == rows_) return;  // after the last block finish() calls it
    try {
      progress_(done_, rows_);
    } catch (...) {
      error_ = std::current_exception();
      stopped_ = true;
    }
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

  void finish() {
    if (progress_ && rows_ > 0) progress_(rows_, rows_);
  }

 private:
  const EvaluationProgress& progress_;
  const int64_t rows_;
  std::mutex mutex_;
  int64_t done_ = 0;
  std::atomic<bool> stopped_ = false;
  std::exception_ptr error_;
};

// A module's parts are in evaluation mode while it lives, and then in their own mode again, also after an
// error.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : modes_(module) { module.eval(); }
  ~EvaluationMode() { modes_.restore(); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  const TrainingModes modes_;
};

// Evaluates one rank's blocks. Returns (most_per_rank + 1, sum_count) double on its device: the blocks' sums
// in order, zeros where it has no more. The last row begins with the number of rows evaluated.
torch::Tensor evaluate_rank(const Model& model, const BatchSource& source, Precision precision,
                            const Blocks& blocks, const Endpoint& endpoint, ProgressReport& report) {
  const torch::NoGradGuard no_grad;
  const auto device = endpoint.device();
  const auto last = blocks.most_per_rank();
  auto sums = torch::zeros({last + 1, sum_count(model)}, torch::dtype(torch::kFloat64).device(device));
  int64_t done = 0;
  std::vector<int64_t> numbers;  // of a block's rows
  torch::Tensor on_device;       // (rows of a block), the same
  const auto spec = std::make_shared<const BatchSpec>(source.spec());
  Batch inputs(spec);
  const EvaluationMode mode(*model.module);
  for (int64_t b = endpoint.rank(); b < blocks.count() && !report.stopped(); b += blocks.world) {
    numbers.resize(static_cast<size_t>(blocks.size(b)));
    std::iota(numbers.begin(), numbers.end(), b * kEvaluationBlock);
    upload_rows(numbers, blocks.rows, device, on_device);
    const ReplicaRandom random(kEvaluationSeed, b, 0);
    const auto place = fmt::format("rank {} ({}): in the evaluation of rows {} to {}", endpoint.rank(),
                                   device.str(), numbers.front(), numbers.back());
    sums[b / blocks.world].copy_(evaluate_block(model, source, on_device, precision, inputs, *spec, place));
    done += blocks.size(b);
    report.add(blocks.size(b));
  }
  sums[last][0].fill_(static_cast<double>(done));
  return sums;
}

// sums: (world, most_per_rank + 1, sum_count), what evaluate_rank() returns on each rank.
RowSums add_up(const torch::Tensor& sums, const Blocks& blocks, const Model& model) {
  const auto host = sums.cpu();  // waits for the device
  double done = 0;
  for (int64_t rank = 0; rank < blocks.world; ++rank) done += host[rank][-1][0].item<double>();
  if (done != static_cast<double>(blocks.rows)) {
    throw PeerError(
        fmt::format("another process ended the evaluation after {:.0f} of {} rows", done, blocks.rows),
        "that process's own error says why");
  }
  auto result = zero_sums(model.metrics);
  result.rows = blocks.rows;
  for (int64_t b = 0; b < blocks.count(); ++b) {
    add_sums(model, host[b % blocks.world][b / blocks.world].const_data_ptr<double>(), result);
  }
  if (!model.weight) result.weight = static_cast<double>(result.rows);
  return result;
}

}  // namespace

RowSums evaluate(std::span<const Model> models, std::span<const std::shared_ptr<const BatchSource>> sources,
                 Precision precision, ReplicaWorkers& workers, Communicator& communicator,
                 const EvaluationProgress& progress) {
  const Blocks blocks{.rows = sources.front()->size(), .world = communicator.world_size()};
  if (blocks.rows == 0) throw UsageError("a data set of 0 rows cannot be evaluated");
  ProgressReport report(progress, blocks.rows_of(communicator));
  std::vector<torch::Tensor> sums(models.size());  // of all ranks, one copy per replica of this process
  workers.run(communicator, [&](int local, Endpoint& endpoint) {
    const auto i = static_cast<size_t>(local);
    const auto own = evaluate_rank(models[i], *sources[i], precision, blocks, endpoint, report);
    sums[i] = gather_tensors(own, endpoint);
  });
  report.rethrow();  // after the collective, in which the other processes wait
  const auto result = add_up(sums.front(), blocks, models.front());
  report.finish();
  return result;
}

RowSums Trainer::evaluate(const EvaluationProgress& progress) {
  RowSums result;
  with_shared_buffers(/*averaged=*/true, [&] {
    result = lockstep::evaluate(models_, test_sources_, options_.replica.precision, workers_, *communicator_,
                                progress);
  });
  return result;
}

}  // namespace lockstep
