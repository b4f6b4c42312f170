// lockstep bench: one subcommand per benchmark.
#pragma once

namespace CLI {
class App;
}

namespace lockstep {

void setup_bench(CLI::App& app);

}  // namespace lockstep
