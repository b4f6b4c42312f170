// `lockstep data verify`: compares Fashion-MNIST's files with the published ones.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace lockstep {

struct DataVerifyOptions {
  std::optional<std::string> data;
  bool json = false;
};

void setup_data(CLI::App& app);

// Prints one line per file, or all files as one JSON object. Throws DataError if a file is missing or
// damaged, and, after printing, if a file differs.
void run_data_verify(const DataVerifyOptions& options);

}  // namespace lockstep
