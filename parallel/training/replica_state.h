// The state of one replica as bytes, so that it can travel between ranks. replica_state.cpp also has the
// functions of Replica that read and set its state.
#pragma once

#include <torch/types.h>

#include <lockstep/support/train_state.h>
#include <lockstep/support/types.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

// The states of torch's default generators, (n) uint8 on the host. A CPU has no generator of its own beside
// the process's: (0).
torch::Tensor generator_state(torch::Device device);
torch::Tensor device_generator_state(torch::Device device);

// Sets the default generator of `device`. Does nothing for an empty state, or one of another kind of device.
// Throws WeightsError if the device's generator refuses it.
void set_generator_state(torch::Device device, const torch::Tensor& state);

// Throws WeightsError if a CPU's generator would refuse this state.
void require_generator_state(const torch::Tensor& state);

// Returns contiguous copies on the host, of these tensors or of the module's buffers.
std::vector<NamedTensor> host_copies(const std::vector<NamedTensor>& tensors);
std::vector<NamedTensor> host_buffers(const torch::nn::Module& module);

// (n) uint8 on the host. The buffers are those of one module, in its order.
torch::Tensor pack(const ReplicaState& state);

// The inverse. `like`: buffers of the same module, for their names, shapes and dtypes. Bytes behind the state
// are ignored. Throws FailedError when there are too few.
ReplicaState unpack(const torch::Tensor& bytes, const std::vector<NamedTensor>& like);

}  // namespace lockstep
