// The flags of `sweep`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/train/flags.h>

namespace lockstep {

struct SweepOptions {
  TrainFlags
      train;  // what all cells share; devices, batch size, learning rate and epochs are each cell's own

  // The axes, as typed. An empty one has the one value that `train` would take.
  std::vector<std::string> devices;       // one list a --devices
  std::optional<std::string> batch_size;  // "128,256"
  std::optional<std::string> lr;
  std::optional<std::string> epochs;
  bool scale_batch = false;  // k times batch and learning rate on k devices

  std::optional<std::string> json;    // a file that the sweep makes
  std::optional<std::string> resume;  // one that it goes on with
  bool overwrite = false;
};

}  // namespace lockstep
