// lockstep demo: the small demonstrations of the chapters.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace lockstep {

struct DemoScratchOptions {
  std::string devices = "auto";
};

void setup_demo(CLI::App& app);
void run_demo_scratch(const DemoScratchOptions& options);

}  // namespace lockstep
