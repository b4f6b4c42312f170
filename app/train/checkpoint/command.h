// lockstep checkpoint ls|verify|export: looks at what a run has kept.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace lockstep {

void setup_checkpoint(CLI::App& app);

// Prints one line per checkpoint of the run, or all as one JSON object. Reads no tensors and checks no
// digests. Throws WeightsError if there is no such run.
void run_checkpoint_ls(const std::string& run, bool json);

// Verifies a checkpoint, or all of a run, and prints one line each. Throws WeightsError, after printing, if
// one is damaged.
void run_checkpoint_verify(const std::string& path);

// Verifies the checkpoint, or takes a run's newest, and writes its weights to `file`, which `eval` and Python
// read: of a run with --ema their average, unless `trained` asks for the weights themselves. Throws
// WeightsError or OutputError. A run of an exported program writes what Python's load_state_dict() takes, and
// to a .pt2 file the program with these weights; `program` says where it is, if its file has moved.
void run_checkpoint_export(const std::string& path, const std::string& file, bool overwrite,
                           bool trained = false, const std::optional<std::string>& program = {});

}  // namespace lockstep
