// lockstep plot: draws the files that lockstep writes.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep {

struct PlotOptions {
  std::vector<std::string> files;
  std::optional<std::string> output;  // default: the first file's name with .svg, in the current folder
  bool overwrite = false;
};

void setup_plot(CLI::App& app);
void run_plot(const PlotOptions& options);

}  // namespace lockstep
