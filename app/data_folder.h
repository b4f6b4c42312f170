// Where the data comes from, for every subcommand alike.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kSyntheticData = "synthetic";

// A folder, or kSyntheticData: what --data says, else the variable LOCKSTEP_DATA, else the folder of Debian's
// package.
std::string data_folder(const std::optional<std::string>& flag);

}  // namespace lockstep
