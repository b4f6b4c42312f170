// What the processes of a run do together: begin, fail, leave.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include <lockstep/app/processes/train_world.h>

namespace lockstep {

// Runs `action` in every process and returns the results of all, by process. If it fails in one process, it
// fails in all with the same exit code: there with its own error, elsewhere with one that names the process.
// So bad input of one process ends all at once, and none waits for the others until the time-out. Throws
// UsageError when a process is of another version of the program, and PeerError when one does not answer.
std::vector<nlohmann::ordered_json> together(const TrainWorld& world,
                                             const std::function<nlohmann::ordered_json()>& action);

// Waits until all processes are here. A process that left while another one is still in a collective would
// make that fail. Never throws: what this process has left to do, it can do without the others.
void leave_together(const TrainWorld& world) noexcept;

// Runs `action`. In a world of several processes it throws errors as ProcessError, which names this process.
// The others are told the error; where this process has lost another one, the error says which one has failed
// (Processes::explain). ReaderGoneError stays as it is.
void as_process(const TrainWorld& world, const std::function<void()>& action);

}  // namespace lockstep
