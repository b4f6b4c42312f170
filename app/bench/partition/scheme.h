// The schemes that partition a network over devices, and what a training step costs with each.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include <lockstep/app/bench/partition/mesh.h>
#include <lockstep/app/bench/partition/network.h>
#include <lockstep/support/types.h>

namespace lockstep {

// The task that all schemes train, on the host.
struct PartitionTask {
  LayeredNetwork network;
  Params params;  // of the whole network; their dtype is the dtype of the computation
  Batch batch;    // input (n, 1, 28, 28) of the same dtype, target (n) int64
};

// Takes training steps of one network on one batch. The constructor copies the parameters and rows that each
// device needs to the devices; that does not count as traffic. The mesh outlives the scheme.
class PartitionScheme {
 public:
  explicit PartitionScheme(Mesh& mesh) : mesh_(mesh) {}
  virtual ~PartitionScheme() = default;
  PartitionScheme(const PartitionScheme&) = delete;
  PartitionScheme& operator=(const PartitionScheme&) = delete;

  // Called in the device's own thread, forward() first; all devices run at once. Afterwards .grad of the
  // device's parameters holds the gradient of the mean loss over the batch, or the device's part of it.
  virtual void forward(int rank) = 0;
  virtual void backward(int rank) = 0;

  // The parameters on this device: leaves with gradients.
  virtual const Params& parameters(int rank) const = 0;

  // The network's gradients on the host, in the order of PartitionTask::params: one complete set per copy of
  // the network.
  virtual std::vector<Params> gradients() const = 0;

  // Called when a device has failed, from any thread. Ends waits outside the mesh; the mesh ends its own.
  virtual void abort(std::exception_ptr) {}

 protected:
  Mesh& mesh() const { return mesh_; }
  // Copies of the gradients of this device's parameters, on the host.
  Params host_gradients(int rank) const;

 private:
  Mesh& mesh_;
};

using SchemePtr = std::unique_ptr<PartitionScheme>;

// Pipeline parallel (the chapter's network-wise): each device runs consecutive layers and sends their output
// to the next device. Device i runs layers [starts[i], starts[i+1]); see balanced_stages(). The batch is cut
// into micro-batches. All forward passes come first: device i works on one micro-batch while device i + 1
// works on the one before. Then come all backward passes (GPipe: Y. Huang et al., NeurIPS 2019). With one
// micro-batch, one device works at a time. Throws UsageError if there are more micro-batches than rows.
SchemePtr pipeline_parallel(Mesh& mesh, const PartitionTask& task, std::vector<size_t> starts,
                            int micro_batches);

// The whole network on the mesh's first device: the reference for the other schemes.
inline SchemePtr one_device(Mesh& mesh, const PartitionTask& task) {
  return pipeline_parallel(mesh, task, {0, task.network.layers.size()}, /*micro_batches=*/1);
}

// Tensor parallel (the chapter's layer-wise): every layer's channels or units are shared out over all
// devices. Forward, each device computes its channels of a convolution or its units of a linear layer, and
// the ReLU and pooling that follow. Then all devices gather the whole output, which the next layer needs.
// Backward, each device computes a partial gradient of the layer's whole input; these are summed, and each
// device takes the channels that it computed. Every device computes the loss. Throws UsageError if a layer
// has fewer channels or units than there are devices.
SchemePtr tensor_parallel(Mesh& mesh, const PartitionTask& task);

// Data parallel (the chapter's data-wise): every device holds the whole network and computes its share of the
// rows. This is what lockstep does, with the library's split_batch() and GradientSync, and sums overlapped.
// Single copies within a sum cannot be observed, so each sum counts as one synchronisation and as the
// 2 (n-1) S bytes that root, two_shot and ring move for n devices and S bytes. NCCL may move another number.
// A device without rows runs no layers.
SchemePtr data_parallel(Mesh& mesh, const PartitionTask& task);

// Forward, backward, update. Returns when all devices have finished; GPUs may only have queued their work. An
// error on one device ends the step on all devices and is thrown.
void take_step(Mesh& mesh, PartitionScheme& scheme, double lr);

// Returns the gradients of a step. Does not change the parameters.
std::vector<Params> step_gradients(Mesh& mesh, PartitionScheme& scheme);

struct StepCost {
  Traffic traffic;
  // Bytes on the device that holds the most. Parameters: the values alone.
  int64_t parameter_bytes = 0;
  // The bytes that forward() allocated and backward() still finds, as torch's allocators report them: layers'
  // outputs, tensors from other devices, the loss. The batch is not included.
  int64_t activation_bytes = 0;
};

// Runs one step and returns its cost. Warm up first.
StepCost cost_of_step(Mesh& mesh, PartitionScheme& scheme, double lr);

// relative: the largest max|a - b| / max|b| of all parameters. largest: max|b| over all parameters. Throws
// UsageError if shapes differ.
struct Difference {
  double relative = 0;
  double largest = 0;
};
Difference difference(const Params& gradients, const Params& expected);

// X on this device, in the memory format that is fastest there: channels_last on a CPU. Every layer keeps it.
torch::Tensor rows_for(const torch::Tensor& X, torch::Device device);

}  // namespace lockstep
