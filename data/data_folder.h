// Finds the data set.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kSyntheticData = "synthetic";

// Returns `given` if it is set, else the variable LOCKSTEP_DATA if it is not empty, else the folder of
// Debian's package. The result may be kSyntheticData instead of a folder.
std::string data_folder(const std::optional<std::string>& given);

}  // namespace lockstep
