// The data set a command works on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/data/dataset.h>

namespace lockstep {

struct LoadedData {
  Dataset set;
  std::string origin;  // the folder, or how it was made
};

// data: a folder, "synthetic", or what data_folder() finds. limit_train: only so many training rows.
LoadedData load_data(const std::optional<std::string>& data, uint64_t seed,
                     std::optional<int64_t> limit_train);

}  // namespace lockstep
