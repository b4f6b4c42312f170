// Which devices a run uses. A device may be listed more than once: each mention is one replica.
#pragma once

#include <c10/core/Device.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// GPUs this process can use; 0 without CUDA or without a driver.
int visible_gpus();

// Reads a device list:
//   auto          the first GPU, or the CPU where there is none
//   cpu, cuda     the CPU; all GPUs
//   cuda:1        one GPU by index
//   cpux4         four replicas on one device; cuda:0x2 likewise
//   cuda:0,cpu    a list of these
// Throws UsageError for what is not such a list, DeviceError for a GPU that is not there (`gpus` of them
// are).
std::vector<torch::Device> parse_devices(std::string_view spec, int gpus = visible_gpus());

// Throws DeviceError for a GPU on which this program cannot compute, such as one that it has no kernels for.
void check_devices(std::span<const torch::Device> devices);

// The chapter's names: the i-th GPU, or the CPU when there is none; all GPUs, or the CPU.
torch::Device try_gpu(int i = 0, int gpus = visible_gpus());
std::vector<torch::Device> try_all_gpus(int gpus = visible_gpus());

// "[cuda:0, cuda:1]"
std::string to_string(std::span<const torch::Device> devices);

}  // namespace lockstep
