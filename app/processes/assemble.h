// Before anything is read or written: which processes take part, on which devices and cores.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/app/files/json.h>
#include <lockstep/app/processes/train_world.h>

namespace lockstep {

// The facts that a process tells the others. "lists": its lists of devices, by their names: [["cpu", "cpu"],
// ["cpu"]]. It uses one list at a time. "supports": for each list an AllreduceSupport.
using Member = Json;

// Returns the facts of a process with these lists.
Member member_with(std::span<const std::vector<torch::Device>> lists);

// Runs `introduce` in every process and returns what all say, by process. Processes of one machine that may
// use the same cores share them by their longest lists: this thread is pinned to its process's part. Throws
// as together() does.
std::vector<Member> gather_members(const TrainWorld& world, const std::function<Member()>& introduce);

// Gives world the devices in list `list` of every process, and what these support.
void take_list(const std::vector<Member>& members, size_t list, TrainWorld& world);

// Runs `action` in every process. It returns an object of all settings that must be the same, such as
// agreed_fields() (app/train/settings/settings.h). Throws as together() and require_same()
// (parallel/collectives/agree.h) do: "the settings differ: process 1 has lr 0.1 where process 0 has lr 0.2".
void agree_on_settings(const TrainWorld& world, const std::function<Json()>& action);

// Returns the device list of a process. `auto` with GPUs becomes cuda:N, N = local process modulo gpus.
std::string local_spec(const std::string& spec, const World& place, int gpus);

}  // namespace lockstep
