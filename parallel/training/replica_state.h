// The state of one replica as bytes, so that it can travel between ranks. replica_state.cpp also has the
// functions of Replica that read and set its state.
#pragma once

#include <torch/types.h>

#include <span>

#include <lockstep/support/tensor_allocator.h>
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

// Sets the default generator of `device`. A state that is empty, or of another kind of device, changes
// nothing. Throws WeightsError if the device's generator refuses it.
void set_generator_state(torch::Device device, const torch::Tensor& state);

// Sets the default generators that a replica uses. devices: of this process's replicas, of which it is number
// `local`. Replicas that share a generator set it once: the states of their ranks may differ. Throws as
// set_generator_state() does.
void set_generators(int local, std::span<const torch::Device> devices, const ReplicaState& own);

// Throws WeightsError if set_generators() would, for a replica on this device. Changes nothing.
void require_generators(torch::Device device, const ReplicaState& own);

// Returns contiguous copies on the host, of these tensors or of the module's buffers.
std::vector<NamedTensor> host_copies(const std::vector<NamedTensor>& tensors,
                                     const TensorAllocator& memory = heap_memory());
std::vector<NamedTensor> host_buffers(const torch::nn::Module& module);

// (n) uint8 on the host. The buffers are those of one module, in its order.
torch::Tensor pack(const ReplicaState& state);

// The inverse. `like`: buffers of the same module, for their names, shapes and dtypes. Bytes behind the state
// are ignored. Throws FailedError when there are too few.
ReplicaState unpack(const torch::Tensor& bytes, const std::vector<NamedTensor>& like);

}  // namespace lockstep
