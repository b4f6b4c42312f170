// IDX files of images and labels that the models take: 28 x 28 grey pixels, labels 0 to 9.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <lockstep/data/formats/idx.h>

namespace lockstep {

// About whole files of other images or labels.
inline constexpr std::string_view kUnfitHint =
    "the models take grey images of 28 x 28 pixels with labels 0 to 9: convert the files, or train on them "
    "with a program of your own (docs/migrating.md)";

// About a file that is broken.
std::string damaged_hint(const std::filesystem::path& path);

// Throw DataError as IdxReader does.
IdxReader open_images(const std::filesystem::path& path);
IdxReader open_labels(const std::filesystem::path& path);

}  // namespace lockstep
