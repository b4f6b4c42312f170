// Device lists. A list has one element per replica: listing a device twice creates two replicas on it.
#pragma once

#include <torch/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr int kMaxReplicas = 1024;  // per list

// The number of GPUs that this process can use; 0 without CUDA or without a driver.
int visible_gpus();

// Parses a device list:
//   auto          the first GPU, or the CPU if there is no GPU
//   cpu           the CPU
//   cuda          all GPUs
//   cuda:1        one GPU by index
//   cpux4         four replicas on the CPU; cuda:0x2: two on one GPU
//   cuda:0,cpu    a list of these
// gpus: how many GPUs there are. Throws UsageError for any other text and DeviceError for a GPU that does not
// exist.
std::vector<torch::Device> parse_devices(std::string_view spec, int gpus = visible_gpus());

// parse_devices() that also checks whether this program can compute on the devices: throws DeviceError for a
// GPU that it has no kernels for, and UsageError for a CPU that cannot run the kernels that the environment
// asks for (LOCKSTEP_CPU_CAPABILITY).
std::vector<torch::Device> usable_devices(std::string_view spec);

// The chapter's try_gpu: the i-th GPU, or the CPU if there is none.
torch::Device try_gpu(int i = 0, int gpus = visible_gpus());
// The chapter's try_all_gpus: all GPUs, or the CPU if there is none.
std::vector<torch::Device> try_all_gpus(int gpus = visible_gpus());

// Return true if a device of the list is a GPU (anything but the CPU), or the CPU.
bool any_gpu(std::span<const torch::Device> devices);
bool any_cpu(std::span<const torch::Device> devices);

// The list as parse_devices() takes it: "cpux2", "cuda:0,cuda:1", "cuda:0x2,cpu".
std::string spec_of(std::span<const torch::Device> devices);

// For messages: "[cuda:0, cuda:1]". Three or more equal devices in a row are counted: "[cpu x 64]".
std::string to_string(std::span<const torch::Device> devices);

}  // namespace lockstep
