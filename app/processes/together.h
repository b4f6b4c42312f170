// The processes of a run begin, fail and leave together.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include <lockstep/app/processes/train_world.h>

namespace lockstep {

// Runs `action` in every process and returns the results of all, by process. If it fails in one process, all
// throw with the same exit code: that process its own error, the others one that names it. So bad input ends
// all at once, and none waits until the timeout. Throws UsageError if processes run different versions of
// the program, and PeerError if one does not answer.
std::vector<nlohmann::ordered_json> together(const TrainWorld& world,
                                             const std::function<nlohmann::ordered_json()>& action);

// Waits until all processes call it. If a process left during a collective of another, that collective would
// fail. Never throws: the rest of this process's work does not need the others.
void leave_together(const TrainWorld& world) noexcept;

// Runs `action`. In a world of several processes it throws errors as ProcessError, which names this process,
// and sends them to the others. If this process lost another one, the error says which one failed
// (ProcessGroup::explain). ReaderGoneError is thrown on unchanged.
void as_process(const TrainWorld& world, const std::function<void()>& action);

}  // namespace lockstep
