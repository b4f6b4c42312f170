#include <lockstep/support/choices.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {

void throw_unknown_name(std::string_view name, const std::vector<std::string>& known) {
  throw UsageError(fmt::format("unknown name '{}'", name),
                   fmt::format("known names: {}", fmt::join(known, ", ")));
}

}  // namespace lockstep
