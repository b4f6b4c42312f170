// lockstep bench: the chapters' measurements, and those of this program. Each is a subcommand of its own.
#pragma once

namespace CLI {
class App;
}

namespace lockstep {

void setup_bench(CLI::App& app);

}  // namespace lockstep
