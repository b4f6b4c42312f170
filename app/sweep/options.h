// The flags of `sweep`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/train/plan/flags.h>

namespace lockstep {

struct SweepOptions {
  TrainFlags train;  // common to all cells, except devices, batch size, learning rate and epochs

  // The axes as given. An empty axis has the value that `train` would use.
  std::vector<std::string> devices;       // one list per --devices
  std::optional<std::string> batch_size;  // "128,256"
  std::optional<std::string> lr;
  std::optional<std::string> epochs;
  bool scale_batch = false;  // multiply batch size and learning rate by the number of devices

  std::optional<std::string> json;    // new file
  std::optional<std::string> resume;  // file to continue
  bool overwrite = false;
};

}  // namespace lockstep
