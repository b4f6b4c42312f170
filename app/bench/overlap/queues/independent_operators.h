// Independent matmuls on one device, run one after another or side by side.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/app/bench/overlap/queues/work_queue.h>

namespace lockstep {

enum class OperatorWay { kOneAfterAnother, kSideBySide };

// One after another: one stream; on a CPU one thread, whose operators use all cores. Side by side: several
// streams; on a CPU several threads, each with its own cores.
class IndependentOperators {
 public:
  // cores: how many a CPU device may use.
  IndependentOperators(torch::Device device, int cores, int64_t operators);

  // The j-th operator multiplies its own (size, size) float matrix by itself.
  void set_size(int64_t size, uint64_t seed);

  // Runs all operators `rounds` times. Returns the seconds per round.
  double seconds(OperatorWay way, int64_t rounds);

  // Runs all operators once and adds one event per operator to the trace.
  void trace_once(OperatorWay way, Trace& trace);

  // Fills the results with NaN, runs all operators once, and returns how many results differ from torch's by
  // more than rounding.
  int64_t wrong_results(OperatorWay way);

  int64_t operators() const { return operators_; }
  size_t queues(OperatorWay way) const { return of(way).size(); }

 private:
  const std::vector<WorkQueue*>& of(OperatorWay way) const {
    return way == OperatorWay::kOneAfterAnother ? one_ : side_;
  }
  void multiply(int64_t j) {
    at::mm_out(results_[static_cast<size_t>(j)], inputs_[static_cast<size_t>(j)],
               inputs_[static_cast<size_t>(j)]);
  }
  void queue_each(OperatorWay way);

  const torch::Device device_;
  const int64_t operators_;
  std::vector<torch::Tensor> inputs_;   // per operator: (size, size) float
  std::vector<torch::Tensor> results_;  // per operator: (size, size) float
  std::vector<std::unique_ptr<WorkQueue>> queues_;
  std::vector<WorkQueue*> one_;
  std::vector<WorkQueue*> side_;
};

int64_t independent_operators_bytes(int64_t size, int64_t operators);

}  // namespace lockstep
