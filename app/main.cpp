// The program. All that needs a library is compiled in units of many sources.
#include <lockstep/app/commands/command_line.h>

int main(int argc, char** argv) { return lockstep::run_command_line(argc, argv); }
