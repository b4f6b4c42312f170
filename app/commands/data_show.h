// lockstep data show: what a data set holds.
#pragma once

#include <optional>
#include <string>

#include <lockstep/app/train/plan/data_flags.h>

namespace CLI {
class App;
}

namespace lockstep {

struct DataShowOptions {
  DataFlags data;                    // as train has them
  std::optional<std::string> sheet;  // a PNG of some rows of each class
  bool overwrite = false;
  bool json = false;
};

// data: the command that it is a part of.
void setup_data_show(CLI::App& data);

// Prints shape, rows, classes with their counts, and mean and deviation of each channel of the training
// images; of image files also their sizes and formats. What is odd is warned of, and so is each file that
// cannot be read. Throws what reading the data throws, UsageError for a sheet of rows that are no images of
// one or three channels, and OutputError.
void run_data_show(const DataShowOptions& options);

}  // namespace lockstep
