// Before anything is read or written: who trains, on which devices, and on which cores.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/train/flags.h>

namespace lockstep {

// Runs `check` in every process, and asks all for their devices: afterwards world.devices is there. Processes
// of one machine that may use the same cores share them: this thread is pinned to its process's part.
// Processes other than the first get the first one's output flags, which say when all compute sums or collect
// weights; they are quiet. Throws as together() does, and what parsing the devices throws. Alone: runs
// `check` only.
void assemble(TrainWorld& world, TrainFlags& options, const std::function<void()>& check);

// settings: agreed_fields() (app/train/fields.h) of every process. Throws UsageError, the same in every
// process, that names the first field in which a process differs from process 0, and both values.
void refuse_other_settings(const std::vector<nlohmann::ordered_json>& settings);

// The device list of a process: with several GPUs `auto` is another one for each process of a host.
std::string local_spec(const std::string& spec, const World& place, int gpus);

// Divides cores among processes by their number of replicas. Returns those of process `own`: at least one,
// and none of another process if there is a core for each replica.
std::vector<int> share_of_cores(const std::vector<int>& cores, std::span<const size_t> replicas, size_t own);

}  // namespace lockstep
