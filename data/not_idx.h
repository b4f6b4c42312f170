// Tells what a data folder without the four IDX files holds instead.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

struct OtherData {
  std::string what;  // "images such as cats/1.png, and no IDX files"
  std::string hint;  // how to fix it
};

// Looks at the first entries of the folder and of the folders in it. Empty: nothing that is known.
std::optional<OtherData> other_data(const std::filesystem::path& folder);

}  // namespace lockstep
