// lockstep data show: what a data set holds.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace lockstep {

struct DataShowOptions {
  std::optional<std::string> data;   // as --data of train
  std::optional<std::string> sheet;  // a PNG of some rows of each class
  bool overwrite = false;
  bool json = false;
};

// data: the command that it is a part of.
void setup_data_show(CLI::App& data);

// Prints shape, rows, classes with their counts, and mean and deviation of each channel of the training
// images. Throws what reading the data throws, UsageError for a sheet of rows that are no images of one or
// three channels, and OutputError.
void run_data_show(const DataShowOptions& options);

}  // namespace lockstep
