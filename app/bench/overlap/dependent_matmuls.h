// A task with joins and reuse, on one device or dealt to two by its dependencies.
//
//   a = x x    b = y y    c = a + b    d = a c    e = b c    f = d + e
//
// a and b are independent, c joins them, a, b and c are used again, f joins once more. On two devices the
// first one computes a, c, d and f, the second b and e; b, c and e travel.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include <lockstep/app/bench/overlap/exercises/task_graph.h>

namespace lockstep {

class DependentProducts {
 public:
  // The queues of the two devices, which may be the same one: then nothing travels. Each pass waits for the
  // one before. They outlive it.
  DependentProducts(WorkQueue& first, WorkQueue& second, int64_t size, int64_t passes, uint64_t seed);

  TaskGraph& graph() { return graph_; }

  torch::Tensor result() const { return f_.cpu(); }  // (size, size) float on the host
  void spoil();                                      // fills everything but x and y with NaN

 private:
  void add_pass(WorkQueue& first, WorkQueue& second);

  // (size, size) float, on the first device or the second; what the other one has of it, too.
  torch::Tensor x_, a_, c_, d_, f_, b_here_, e_here_;
  torch::Tensor y_, b_, e_, c_there_;
  TaskGraph graph_;
};

int64_t dependent_products_bytes(int64_t size);  // on the device that takes the most

}  // namespace lockstep
