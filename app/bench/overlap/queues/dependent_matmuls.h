// Matmuls and sums that depend on each other, on one device or divided between two.
//
//   a = x x    b = y y    c = a + b    d = a c    e = b c    f = d + e
//
// a and b are independent; c joins them; a, b and c are reused; f joins d and e. With two devices the first
// computes a, c, d and f, the second b and e; b, c and e are copied.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include <lockstep/app/bench/overlap/queues/task_graph.h>

namespace lockstep {

class DependentMatmuls {
 public:
  // The queues of the two devices. If both are the same queue, nothing is copied. Each pass waits for the one
  // before. The queues outlive this object.
  DependentMatmuls(WorkQueue& first, WorkQueue& second, int64_t size, int64_t passes, uint64_t seed);

  TaskGraph& graph() { return graph_; }

  torch::Tensor result() const { return f_.cpu(); }  // (size, size) float on the host
  void fill_with_nan();                              // fills all but x and y with NaN

 private:
  void add_pass(WorkQueue& first, WorkQueue& second);

  // (size, size) float. The first line is on the first device, the second line on the second.
  torch::Tensor x_, a_, c_, d_, f_, b_here_, e_here_;
  torch::Tensor y_, b_, e_, c_there_;
  TaskGraph graph_;
};

// Bytes on the first device, which holds two graphs: one whole (8 matrices), and its part of the one on two
// devices (7).
inline int64_t dependent_matmuls_bytes(int64_t size) { return matrix_bytes(size, 8 + 7); }

}  // namespace lockstep
