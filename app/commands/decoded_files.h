// Image files, decoded by several threads, where one that cannot be read is no end of it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/data/images/pixels.h>

namespace lockstep {

struct DecodedFile {
  Pixels image = {};
  std::string fault = {};  // why there is no image: one sentence, which begins with the path
};

// Decodes the files, in their order. check: called by several threads for each image before it is kept; the
// first exception of it ends all.
std::vector<DecodedFile> decode_files(
    std::span<const std::string> paths, const DecodeOptions& options, int workers,
    const std::function<void(const Pixels& image, const std::string& path)>& check);

}  // namespace lockstep
