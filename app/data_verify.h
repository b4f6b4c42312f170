// `lockstep data verify`: Fashion-MNIST's files held against the published ones.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace lockstep {

struct DataVerifyOptions {
  std::optional<std::string> data;
};

void setup_data(CLI::App& app);

// Prints a line a file. Throws DataError where a file is missing or damaged, and after the table where one
// differs.
void run_data_verify(const DataVerifyOptions& options);

}  // namespace lockstep
