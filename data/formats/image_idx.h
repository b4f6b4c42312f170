// IDX files of images and labels.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/data/formats/idx.h>

namespace lockstep {

// About whole files of other values.
inline constexpr std::string_view kUnfitHint =
    "images are unsigned bytes, (images, height, width) or (images, channels, height, width) with 1 to 4 "
    "channels, and labels (images): convert the files, or save them as safetensors";

// About a file that is broken.
std::string damaged_hint(const std::filesystem::path& path);

// Throw DataError as IdxReader does, and for images whose channels are not 1 to 4.
IdxReader open_images(const std::filesystem::path& path);
IdxReader open_labels(const std::filesystem::path& path);

// Channels, height and width of open_images(): 1 channel where the file does not say.
std::vector<int64_t> image_shape(const IdxReader& images);

}  // namespace lockstep
