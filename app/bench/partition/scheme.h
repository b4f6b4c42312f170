// What the ways to partition a network over devices have in common: a step's phases, and what a step costs.
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

// What is the same for all ways, on the host. The mesh outlives the ways.
struct PartitionTask {
  LayeredNetwork network;
  Params params;  // of the whole network; decides the dtype
  Inputs batch;   // X (n, 1, 28, 28) of the same dtype, y (n) int64
};

// One way to take training steps of one network on one batch. Every way puts copies of its parameters, or of
// its parts of them, and of the rows it needs on its devices when it is made; none of that counts as moved.
class PartitionWay {
 public:
  explicit PartitionWay(Mesh& mesh) : mesh_(mesh) {}
  virtual ~PartitionWay() = default;
  PartitionWay(const PartitionWay&) = delete;
  PartitionWay& operator=(const PartitionWay&) = delete;

  // Each in the thread of that device, one after the other, in all devices' threads at once. Afterwards
  // .grad of the device's parameters holds the gradient of the mean loss over the batch, or the device's part
  // of it.
  virtual void forward(int rank) = 0;
  virtual void backward(int rank) = 0;

  // What this device holds: leaves with gradients, on it.
  virtual const Params& parameters(int rank) const = 0;

  // Complete sets of the network's gradients, in the order of PartitionTask::params, on the host: one a copy
  // of the network.
  virtual std::vector<Params> gradients() const = 0;

  // A device has failed: takes the others out of what they wait for by other means than the mesh, which sees
  // to those that wait in it. From any thread.
  virtual void abort(std::exception_ptr) {}

 protected:
  Mesh& mesh() const { return mesh_; }

 private:
  Mesh& mesh_;
};

// The whole network on the mesh's first device: what the others are compared with.
std::unique_ptr<PartitionWay> one_device(Mesh& mesh, const PartitionTask& task);

// Forward, backward, update. Returns when all devices have done their part of it; on GPUs, have queued it.
// An error on one device ends the step on all and is thrown.
void take_step(Mesh& mesh, PartitionWay& way, double lr);

// The gradients of a step without its update.
std::vector<Params> step_gradients(Mesh& mesh, PartitionWay& way);

struct StepCost {
  Traffic traffic;
  // The largest of all devices', in bytes. Parameters: their values alone.
  int64_t parameter_bytes = 0;
  // What the device's forward pass has allocated and not given back when its backward pass begins, as torch's
  // allocators report it: outputs of layers, what came from other devices, the loss. The batch was there
  // before.
  int64_t activation_bytes = 0;
};

// Of one step, which it takes; best after another one, so that what is made once is there.
StepCost cost_of_step(Mesh& mesh, PartitionWay& way, double lr);

// The largest, over all parameters, of max|a - b| / max|b|. `largest`: max|b| over all of them. Throws
// UsageError where shapes differ.
struct Difference {
  double relative = 0;
  double largest = 0;
};
Difference difference(const Params& gradients, const Params& expected);

// X as the networks run fastest on the device, which every layer passes on: channels_last on a processor.
torch::Tensor rows_for(const torch::Tensor& X, torch::Device device);

}  // namespace lockstep
