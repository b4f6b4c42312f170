// lockstep recipes: what can be trained by name, and what the chapters report of it.
#pragma once

namespace CLI {
class App;
}

namespace lockstep {

void setup_recipes(CLI::App& app);
void run_recipes();

}  // namespace lockstep
