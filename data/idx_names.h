// The names of the IDX files of a folder, sorted into data sets.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// The order of the four files.
inline constexpr std::array<std::string_view, 4> kIdxNames = {
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

struct IdxName {
  std::string prefix;  // without its dash; may be empty
  size_t file = 0;     // in kIdxNames
  int order = 0;       // of several names for one file the least is taken
};

// Returns what a name says; empty: it is none of an IDX file of images or labels.
std::optional<IdxName> parse_idx_name(std::string_view name);

// The names of the files that were found for each prefix; empty: none.
using IdxNames = std::map<std::string, std::array<std::string, 4>>;

// Reads the names of a folder. Throws DataError if it cannot be read.
IdxNames idx_names_in(const std::filesystem::path& folder);

}  // namespace lockstep
