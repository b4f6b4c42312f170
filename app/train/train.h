// lockstep train: trains a recipe on a list of devices.
#pragma once

namespace CLI {
class App;
}

namespace lockstep {

// The command joins the processes of the world, if there are several, before anything is read or written, and
// trains with them. Process 0 alone prints and writes files.
void setup_train(CLI::App& app);

}  // namespace lockstep
