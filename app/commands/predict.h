// lockstep predict: the classes of rows in files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/commands/named_weights.h>

namespace CLI {
class App;
}

namespace lockstep {

struct PredictOptions {
  std::string weights;                     // the folder of a run or checkpoint, or a safetensors file
  std::vector<std::string> files;          // images, folders of them, and safetensors files of rows
  std::optional<int64_t> image_size = {};  // of images; default: as in training
  bool skip_unreadable = false;            // images that cannot be read are no error
  std::string devices = "auto";
  std::optional<int> threads;  // per replica
  Precision precision = Precision::kFp32;
  bool json = false;
};

void setup_predict(CLI::App& app);

// Prints for each image and row its class, the probability of that, and the five best. Needs no data set.
// Throws WeightsError for weights that do not say what their network takes, DataError for files that do not
// fit it and, after all predictions, for images that cannot be read; NumericError for outputs that are not
// finite.
void run_predict(const PredictOptions& options);

}  // namespace lockstep
