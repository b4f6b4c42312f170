// The chapter's figure as tasks: training steps of a perceptron with two layers on several devices, whose
// gradients are summed on the host, layer by layer, and whose weights come back from there.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/app/bench/overlap/device.h>
#include <lockstep/app/bench/overlap/exercises/task_graph.h>

namespace lockstep {

// rows x width inputs a device, width hidden units, outputs a quarter of that; the loss is half the mean
// squared error over all devices' rows. Backward is written out, a task a layer, so that the sum of the
// second layer's gradients can begin while the first layer's are still computed.
class TwoLayerNetwork {
 public:
  static constexpr int kSteps = 2;  // so that the weights that come back are used

  // Computes and copies in the devices' queues; `host` sums and updates. They outlive it.
  TwoLayerNetwork(OverlapDevices& devices, WorkQueue& host, int64_t width, uint64_t seed);

  // kSteps of plain gradient descent. reset() comes before each run.
  TaskGraph& graph() { return graph_; }
  // The weights of the beginning everywhere.
  void reset();

  // The same steps on all rows at once by autograd, in the calling thread. Returns how far the last step's
  // summed gradients, and the weights after it, are from it: the largest difference over the largest element.
  struct Error {
    double gradients = 0;
    double weights = 0;
  };
  Error error() const;

  // Weights of a device, of both layers, that are not the host's own bits.
  int64_t differing_weights() const;

 private:
  struct Replica {
    torch::Tensor input, target;            // (rows, width), (rows, outputs)
    torch::Tensor weight[2];                // (width, width), (width, outputs)
    torch::Tensor before, hidden;           // (rows, width): of the first layer, before and after ReLU
    torch::Tensor output, output_gradient;  // (rows, outputs)
    torch::Tensor before_gradient;          // (rows, width)
    torch::Tensor gradient[2];              // as weight
    torch::Tensor gradient_on_host[2];      // likewise
  };
  // Of one device's part of a step.
  struct Tasks {
    TaskGraph::Task backward = 0;          // through the second layer: its weights are no longer needed
    TaskGraph::Task copied[2] = {0, 0};    // each layer's gradient is on the host
    std::vector<TaskGraph::Task> sent[2];  // each layer's new weights are on the device; empty: never yet
  };

  void allocate(Replica& replica, torch::Device device, uint64_t seed) const;
  void add_step(std::vector<Tasks>& tasks);
  void add_device(size_t d, Tasks& tasks);
  TaskGraph::Task add_update(int layer, const std::vector<Tasks>& tasks);

  const int64_t rows_, width_, outputs_;
  OverlapDevices& devices_;
  WorkQueue& host_;
  torch::Tensor first_weight_[2];  // (width, width), (width, outputs), of the beginning
  torch::Tensor weight_[2];        // the host's
  torch::Tensor sum_[2];           // of the gradients
  std::vector<Replica> replicas_;
  TaskGraph graph_;
};

// Bytes it takes on a device and, of the host's own, for so many devices.
int64_t two_layer_device_bytes(int64_t width);
int64_t two_layer_host_bytes(int64_t width, int64_t devices);

}  // namespace lockstep
