// Products that do not depend on each other, on one device: one after another, or side by side.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/app/bench/overlap/work_queue.h>

namespace lockstep {

enum class OperatorWay { kOneAfterAnother, kSideBySide };

// One after another: one stream; on a processor one thread, each of whose operators may use all cores. Side
// by side: a stream each; on a processor a thread with cores of its own each, while there are cores.
class IndependentOperators {
 public:
  // cores: of a processor that all of it may use together.
  IndependentOperators(torch::Device device, int cores, int64_t operators);

  // The j-th operator multiplies a (size, size) float matrix of its own with itself.
  void set_size(int64_t size, uint64_t seed);

  // Of so many rounds of all operators, per round.
  double seconds(OperatorWay way, int64_t rounds);

  // Does all operators once, each one an event of its own.
  void trace_once(OperatorWay way, Trace& trace);

  // Fills the results with NaN, does all once, and counts those that are not torch's own, within rounding.
  int64_t wrong(OperatorWay way);

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
  std::vector<torch::Tensor> inputs_;   // one an operator: (size, size) float
  std::vector<torch::Tensor> results_;  // likewise
  std::vector<std::unique_ptr<WorkQueue>> queues_;
  std::vector<WorkQueue*> one_;
  std::vector<WorkQueue*> side_;
};

int64_t independent_operators_bytes(int64_t size, int64_t operators);

}  // namespace lockstep
