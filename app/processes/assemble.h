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
// ["cpu"]]. It uses one list at a time. "wishes": for each list, whether NCCL can join it.
using Member = Json;

// Returns the facts of a process with these lists.
Member member_with(std::span<const std::vector<torch::Device>> lists);

// Runs `introduce` in every process and returns what all say, by process. Processes of one machine that may
// use the same cores share them by their longest lists: this thread is pinned to its process's part. Throws
// as together() does.
std::vector<Member> meet(const TrainWorld& world, const std::function<Member()>& introduce);

// Gives world the devices in list `list` of every process, and their wishes.
void take_list(const std::vector<Member>& members, size_t list, TrainWorld& world);

// settings: what every process does, such as agreed_fields() (app/train/settings/settings.h). Throws
// UsageError, the same in every process, that names the first field in which a process differs from process
// 0, and both values. verb: what the processes do with their settings.
void refuse_other_settings(const std::vector<Json>& settings, const std::string& verb = "trains");

// Returns the device list of a process. `auto` with GPUs becomes cuda:N, N = local process modulo gpus.
std::string local_spec(const std::string& spec, const World& place, int gpus);

}  // namespace lockstep
