// Values of flags that had another name before. The old name is taken for one version, with a notice.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace lockstep {

// "torch" for --kernels and "stock"; any other word is returned as it is.
std::string current_value(std::string_view flag, const std::string& word);

// Warns of each old name that was given to `app` or to the subcommand that is run.
void warn_of_renamed_values(const CLI::App& app);

}  // namespace lockstep
