// The headings below which the help of train, and of commands that train to measure, lists flags.
#pragma once

#include <initializer_list>

namespace CLI {
class App;
}

namespace lockstep {

// In the order of the help.
enum class HelpGroup { kTask, kReplicas, kOptimizer, kEngine, kMeasuring, kOutput, kProcesses };

const char* heading_of(HelpGroup group);

// Puts these flags below the heading. The command has all of them.
void set_group(CLI::App& command, HelpGroup group, std::initializer_list<const char*> flags);

}  // namespace lockstep
