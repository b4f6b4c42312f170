// Image files, decoded by several threads, where one that cannot be read is no end of it.
#pragma once

#include <cstddef>
#include <filesystem>
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

// Decodes the files, in their order.
std::vector<DecodedFile> decode_files(std::span<const std::string> paths, const DecodeOptions& options,
                                      int workers);

// Calls of(i) for 0 .. count - 1, in any order, by this number of threads at once. Throws what one of the
// calls throws; the others may then not have been made.
void by_workers(int workers, size_t count, const std::function<void(size_t i)>& of);

}  // namespace lockstep
