// Finds the data set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Returns `given` if it is set, else the variable LOCKSTEP_DATA if it is not empty, else the folder of
// Debian's package. The result may be a name of known_data() (data/known_data.h), or a file, instead
// of a folder.
std::string data_folder(const std::optional<std::string>& given);

// Returns true for the name of a data set that needs no files.
bool is_known_data(std::string_view name);

// Returns true for a data set in a safetensors file (data/tensor_data.h): a name that ends with .safetensors,
// unless it is that of a folder.
bool is_tensor_file(const std::filesystem::path& path);

// Returns the bytes of the values of such a file. Throws as load_tensor_data() does, without reading values.
int64_t check_tensor_data(const std::filesystem::path& path, std::span<const std::string> targets = {});

// synthetic
std::vector<std::string> known_data_names();

// For the help of flags: "'synthetic'".
std::string known_data_words();

}  // namespace lockstep
