// The configuration with which a run goes on that --resume names: its own, where no flag was given.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include <lockstep/app/train/checkpoint/run_folder.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/parallel/world/world.h>

namespace CLI {
class App;
}

namespace lockstep {

// Returns what process 0 tells the others of the run that goes on. Null for checkpoints without a
// configuration.
nlohmann::ordered_json run_config(const FoundCheckpoint& found);

// The data set of the run, as its flags and --seed name it; each is empty where the configuration has none,
// and limits always are. A data folder that is not here is none beside LOCKSTEP_DATA.
struct RunData {
  DataFlags data;
  std::optional<uint64_t> seed;
  // The images that it was tested on; empty for checkpoints of earlier versions.
  std::optional<int64_t> test_rows;
  std::string test_hash;
};

RunData run_data(const FoundCheckpoint& found);

// Returns true if this process of the run goes on where it was: among as many processes, and on the same
// devices. given: the flags as parsed so far. Throws what parsing the devices throws.
bool resumes_in_place(const nlohmann::ordered_json& run, const World& place, const TrainFlags& given,
                      const CLI::App& train);

// Sets the flags of `train` that were not given, by command line, environment or configuration file, to those
// of the run. It sets flags that depend on devices and processes only if all processes go on in their place.
// A data folder that is not here is not set beside LOCKSTEP_DATA; the data's hash is checked later. Throws
// WeightsError for a given flag that makes another training, with both values. given: as above.
void apply_run_config(const nlohmann::ordered_json& run, bool in_place, const TrainFlags& given,
                      CLI::App& train);

}  // namespace lockstep
