// The chapter's figure as a task graph: training steps of a two-layer perceptron on several devices. The host
// sums the gradients layer by layer, updates the weights and sends them back.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/app/bench/overlap/queues/device.h>
#include <lockstep/app/bench/overlap/queues/task_graph.h>

namespace lockstep {

// Each device has (rows, width) inputs. There are width hidden units and width / 4 outputs. The loss is half
// the mean squared error over all devices' rows. Backward has one task per layer, so that the host can sum
// the second layer's gradients while the first layer's are computed.
class TwoLayerNetwork {
 public:
  static constexpr int kSteps = 2;  // two, so that the second uses the updated weights

  // Computes and copies in the devices' queues; sums and updates in `host`. Devices and host outlive this
  // object.
  TwoLayerNetwork(const OverlapDevices& devices, WorkQueue& host, int64_t width, uint64_t seed);

  // kSteps of gradient descent. Call reset() before each run.
  TaskGraph& graph() { return graph_; }
  // Sets all weights to their initial values.
  void reset();

  // Takes the same steps on all rows with autograd, in the calling thread. Returns the largest differences of
  // the last step's gradients and of the final weights, relative to the largest element.
  struct Error {
    double gradients = 0;
    double weights = 0;
  };
  Error error() const;

  // The number of weights on all devices, of both layers, whose bits differ from the host's.
  int64_t differing_weights() const;

 private:
  struct Replica {
    torch::Tensor input, target;            // (rows, width), (rows, outputs)
    torch::Tensor weight[2];                // (width, width), (width, outputs)
    torch::Tensor before, hidden;           // (rows, width): first layer, before and after ReLU
    torch::Tensor output, output_gradient;  // (rows, outputs)
    torch::Tensor before_gradient;          // (rows, width)
    torch::Tensor gradient[2];              // shapes of weight
    torch::Tensor gradient_on_host[2];      // shapes of weight
  };
  // The tasks of one device in a step.
  struct Tasks {
    TaskGraph::Task backward = 0;  // through the second layer, after which its weights may be overwritten
    TaskGraph::Task copied[2] = {0, 0};  // copies each layer's gradient to the host
    std::vector<TaskGraph::Task>
        sent[2];  // sends each layer's new weights to the device; empty in the first step
  };

  void allocate(Replica& replica, torch::Device device, uint64_t seed) const;
  void add_step(std::vector<Tasks>& tasks);
  void add_device(size_t d, Tasks& tasks);
  TaskGraph::Task add_update(int layer, const std::vector<Tasks>& tasks);

  const int64_t rows_, width_, outputs_;
  const OverlapDevices devices_;
  WorkQueue& host_;
  torch::Tensor first_weight_[2];  // initial: (width, width), (width, outputs)
  torch::Tensor weight_[2];        // on the host
  torch::Tensor sum_[2];           // of the gradients
  std::vector<Replica> replicas_;
  TaskGraph graph_;
};

// Bytes on a device, in squares of the width: weights and gradients 2.5; a half each for input, before,
// hidden, before_gradient and a temporary; an eighth for each tensor of outputs.
inline int64_t two_layer_device_bytes(int64_t width) { return matrix_bytes(width, 6); }
// On the host: weights, initial weights, sums, the check's tensors, and each device's gradients.
inline int64_t two_layer_host_bytes(int64_t width, int64_t devices) {
  return matrix_bytes(width, 8 + 2 * devices);
}

}  // namespace lockstep
