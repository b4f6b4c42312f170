// The program's whole course: the command line, its command, and an exit code.
#pragma once

namespace lockstep {

// Builds the command line, runs its command, and turns every error into a message on standard error. Returns
// the exit code of main().
int run_command_line(int argc, char** argv);

}  // namespace lockstep
