// Independent matmuls on one device, run one after another or side by side.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/app/bench/overlap/queues/work_queue.h>

namespace lockstep {

// The j-th operator multiplies its own matrix by itself. (size, size) float.
struct Operands {
  std::vector<torch::Tensor> inputs;
  std::vector<torch::Tensor> results;
};
Operands make_operands(torch::Device device, int64_t operators, int64_t size, uint64_t seed);

// One after another: one stream; on a CPU one thread, whose operators use all cores. Side by side: several
// streams; on a CPU several threads, each with its own cores.
class IndependentOperators {
 public:
  // cores: how many a CPU device may use.
  IndependentOperators(torch::Device device, int cores, int64_t operators, bool side_by_side);

  void use(const Operands& operands) { operands_ = operands; }

  // Runs all operators `rounds` times. Returns the seconds per round.
  double seconds(int64_t rounds);

  // Runs all operators once and adds one event per operator to the trace.
  void trace_once(Trace& trace);

  // Fills the results with NaN, runs all operators once, and returns how many results differ from torch's by
  // more than rounding.
  int64_t wrong_results();

  size_t queues() const { return queues_.size(); }

 private:
  void multiply(size_t j) { at::mm_out(operands_.results[j], operands_.inputs[j], operands_.inputs[j]); }
  std::vector<WorkQueue*> pointers() const;
  void queue_each();

  const torch::Device device_;
  Operands operands_;
  std::vector<std::unique_ptr<WorkQueue>> queues_;
};

}  // namespace lockstep
