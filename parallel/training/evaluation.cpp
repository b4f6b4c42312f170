#include <lockstep/parallel/training/evaluation.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/collectives/gather_tensors.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/evaluated_blocks.h>
#include <lockstep/parallel/training/model_errors.h>
#include <lockstep/parallel/training/outcome_sums.h>
#include <lockstep/parallel/training/step_history.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

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

// Evaluates one rank's blocks. Returns (most_per_rank + 1, sum_count) double on its device: the blocks' sums
// in order, zeros where it has no more. The last row begins with the number of rows evaluated, and -1 less
// that number where a callback of this process has ended the evaluation: also in its last block, or this
// process alone would leave with an error.
torch::Tensor evaluate_rank(const Model& model, const BatchSource& source, Precision precision,
                            const Blocks& blocks, const Endpoint& endpoint, ProgressReport& report) {
  EvaluatedBlocks own(model, source, precision, endpoint, "evaluation");
  const auto device = endpoint.device();
  const auto place = [&own] { return own.place(); };
  const auto sums_of_rows = [&](const Batch& rows, const Batch& converted) {
    const auto outcome = model.loss_sum(converted);
    require_usable(outcome, model.metrics, device, /*trains=*/false, place);
    if (!model.weight) return sums_of(outcome);
    const auto weight = model.weight(rows);
    require_usable_weight(weight, device, place);
    return sums_of(outcome, weight.to(torch::kFloat64));
  };
  const auto last = blocks.most_per_rank();
  auto sums = torch::zeros({last + 1, sum_count(model)}, torch::dtype(torch::kFloat64).device(device));
  int64_t done = 0;
  std::vector<int64_t> numbers;  // of a block's rows
  for (int64_t b = endpoint.rank(); b < blocks.count() && !report.stopped(); b += blocks.world) {
    numbers.resize(static_cast<size_t>(blocks.size(b)));
    std::iota(numbers.begin(), numbers.end(), blocks.begin(b));
    sums[b / blocks.world].copy_(own.compute(b, numbers, sums_of_rows));
    done += blocks.size(b);
    report.add(blocks.size(b));
  }
  sums[last][0].fill_(static_cast<double>(report.stopped() ? -1 - done : done));
  return sums;
}

// sums: (world, most_per_rank + 1, sum_count), what evaluate_rank() returns on each rank.
RowSums add_up(const torch::Tensor& sums, const Blocks& blocks, const Model& model) {
  const auto host = sums.cpu();  // waits for the device
  double done = 0;
  bool stopped = false;
  for (int64_t rank = 0; rank < blocks.world; ++rank) {
    const auto told = host[rank][-1][0].item<double>();
    stopped |= told < 0;
    done += told < 0 ? -1 - told : told;
  }
  if (stopped || done != static_cast<double>(blocks.rows)) {
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
  return evaluate(test_sources_.front().first, progress);
}

RowSums Trainer::evaluate(std::string_view test_set, const EvaluationProgress& progress) {
  require_same_history(CommonCall::kEvaluate);
  std::vector<std::string> names;
  const Sources* found = nullptr;
  for (const auto& [name, sources] : test_sources_) {
    names.push_back(name);
    if (name == test_set) found = &sources;
  }
  if (names.size() > 1) {  // before one process refuses its own name
    agree(options_.process_group.get(), "test sets to evaluate", {std::string(test_set)},
          "evaluate the same set in all processes");
  }
  if (!found) {
    throw UsageError(fmt::format("no test set is named {}", test_set),
                     fmt::format("the trainer has {}", fmt::join(names, ", ")));
  }
  RowSums result;
  with_shared_buffers(/*averaged=*/true, [&] {
    result =
        lockstep::evaluate(models_, *found, options_.replica.precision, workers_, *communicator_, progress);
  });
  return result;
}

}  // namespace lockstep
