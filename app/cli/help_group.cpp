#include <lockstep/app/cli/help_group.h>

#include <CLI/CLI.hpp>

namespace lockstep {

const char* heading_of(HelpGroup group) {
  switch (group) {
    case HelpGroup::kTask:
      return "What to train";
    case HelpGroup::kReplicas:
      return "Devices and batch";
    case HelpGroup::kOptimizer:
      return "Optimizer";
    case HelpGroup::kEngine:
      return "Gradients and arithmetic";
    case HelpGroup::kMeasuring:
      return "Measuring";
    case HelpGroup::kOutput:
      return "Watching and keeping";
    case HelpGroup::kProcesses:
      return "Processes";
  }
  return "Options";
}

void set_group(CLI::App& command, HelpGroup group, std::initializer_list<const char*> flags) {
  for (const auto* flag : flags) command.get_option(flag)->group(heading_of(group));
}

}  // namespace lockstep
