// Which devices a run uses. A device may be listed more than once: each mention is one replica.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/support/cuda_info.h>

namespace lockstep {

inline constexpr int kMaxReplicas = 1024;  // of a list

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

// parse_devices(), and DeviceError for a GPU on which this program cannot compute, such as one that it has no
// kernels for. With a processor in the list, what cpu_capability() throws.
std::vector<torch::Device> usable_devices(std::string_view spec);

// A sentence on the GPUs of the list that cannot read each other's memory, so that copies between them go
// through the host; empty where all can. access(a, b): whether GPU a reads b's.
std::optional<std::string> peer_notice(std::span<const torch::Device> devices,
                                       const std::function<bool(int, int)>& access = cuda_peer_access);

// The chapter's names: the i-th GPU, or the CPU when there is none; all GPUs, or the CPU.
torch::Device try_gpu(int i = 0, int gpus = visible_gpus());
std::vector<torch::Device> try_all_gpus(int gpus = visible_gpus());

// For messages: "[cuda:0, cuda:1]". Three or more equal devices in a row are counted: "[cpu x 64]".
std::string to_string(std::span<const torch::Device> devices);

}  // namespace lockstep
