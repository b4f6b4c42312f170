// Tells what a folder that holds no data set holds instead.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

struct OtherData {
  std::string what;  // "images such as cats/1.png"
  std::string hint;  // how to fix it
};

// Looks at the first entries of the folder and of the folders in it. Empty: nothing that is known.
std::optional<OtherData> other_data(const std::filesystem::path& folder);

// Returns what to do with a file that is no data set by its ending, such as .npz; null for other endings.
const char* other_file_hint(const std::filesystem::path& file);

}  // namespace lockstep
