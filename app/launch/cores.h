// CPU sockets, and the cores that each process of a launch gets.
#pragma once

#include <filesystem>
#include <vector>

namespace lockstep {

inline constexpr const char* kCpuFolder = "/sys/devices/system/cpu";  // of the kernel

// The cores ordered by socket, and in the given order on each. A core of unknown socket counts to socket 0.
std::vector<int> by_socket(const std::vector<int>& cores, const std::filesystem::path& folder = kCpuFolder);

// How many processes `-n auto` means: one per GPU, without GPUs one per socket that has some of the cores.
int automatic_processes(int gpus, const std::vector<int>& cores,
                        const std::filesystem::path& folder = kCpuFolder);

// The part of `cores` of one of several processes: all have as many. Empty, for no choice of cores, if there
// are fewer cores than processes.
std::vector<int> cores_of_process(const std::vector<int>& cores, int process, int processes);

}  // namespace lockstep
