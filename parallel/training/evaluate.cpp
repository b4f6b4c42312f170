#include <lockstep/parallel/training/evaluate.h>

#include <torch/nn/module.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>

#include <lockstep/support/classification.h>
#include <lockstep/support/error.h>
#include <lockstep/support/row_numbers.h>

namespace lockstep {
namespace {

// Sums of one block, on the device: (3) double = {loss, top1, top5}.
torch::Tensor evaluate_block(const Model& model, Inputs block, Precision precision) {
  const AutocastGuard autocast(precision, block.X.device());
  block.X = block.X.to(dtype_of(precision));
  return sums_of(model.loss_sum(block));
}

// Calls `progress` from the replicas' threads, and keeps its exception.
class ProgressReport {
 public:
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

  void finish() {
    if (error_) std::rethrow_exception(error_);
    if (progress_) progress_(rows_, rows_);
  }

 private:
  const EvaluationProgress& progress_;
  const int64_t rows_;
  std::mutex mutex_;
  int64_t done_ = 0;
  std::atomic<bool> stopped_ = false;
  std::exception_ptr error_;
};

Evaluation add_up(const std::vector<torch::Tensor>& sums, int64_t rows) {
  Evaluation result{.rows = rows};
  for (const auto& sum : sums) {
    const auto host = sum.cpu();  // waits for the device
    result.loss_sum += host[0].item<double>();
    result.top1 += host[1].item<int64_t>();
    result.top5 += host[2].item<int64_t>();
  }
  return result;
}

}  // namespace

Evaluation evaluate(std::span<const Model> models,
                    std::span<const std::shared_ptr<const BatchSource>> sources, Precision precision,
                    ReplicaWorkers& workers, const EvaluationProgress& progress) {
  const int64_t rows = sources.front()->size();
  if (rows == 0) throw UsageError("a data set of 0 rows cannot be evaluated");
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), int64_t{0});

  const int64_t blocks = (rows + kEvaluationBlock - 1) / kEvaluationBlock;
  std::vector<torch::Tensor> sums(static_cast<size_t>(blocks));
  ProgressReport report(progress, rows);
  workers.run([&](int rank) {
    const torch::NoGradGuard no_grad;
    const auto r = static_cast<size_t>(rank);
    models[r].module->eval();
    torch::Tensor numbers;  // (rows of a block) on the device
    Inputs block;
    for (int64_t b = rank; b < blocks && !report.stopped(); b += workers.size()) {
      const auto count = std::min(kEvaluationBlock, rows - b * kEvaluationBlock);
      upload_rows(
          std::span(order).subspan(static_cast<size_t>(b * kEvaluationBlock), static_cast<size_t>(count)),
          rows, workers.devices()[r], numbers);
      sources[r]->gather(numbers, block);
      sums[static_cast<size_t>(b)] = evaluate_block(models[r], block, precision);
      report.add(count);
    }
    models[r].module->train();
  });

  if (report.stopped()) report.finish();  // throws: some blocks have no sums
  const auto result = add_up(sums, rows);
  report.finish();
  return result;
}

std::vector<std::shared_ptr<const BatchSource>> sources_for(std::span<const torch::Device> devices,
                                                            const SourceFactory& factory) {
  std::map<std::string, std::shared_ptr<const BatchSource>> by_device;
  std::vector<std::shared_ptr<const BatchSource>> sources;
  for (const auto& device : devices) {
    auto& source = by_device[device.str()];
    if (!source) source = factory(device);
    sources.push_back(source);
  }
  return sources;
}

}  // namespace lockstep
