// Finds the data set.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Returns `given` if it is set, else the variable LOCKSTEP_DATA if it is not empty, else the folder of
// Debian's package. The result may be a name of known_data() (data/known_data.h) instead of a folder.
std::string data_folder(const std::optional<std::string>& given);

// Returns true for the name of a data set that needs no files.
bool is_known_data(std::string_view name);

// synthetic
std::vector<std::string> known_data_names();

// For the help of flags: "'synthetic'".
std::string known_data_words();

}  // namespace lockstep
