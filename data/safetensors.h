// Tensors by name in a safetensors file: weights to keep and to exchange. Such a file is data alone; reading
// it runs nothing that stands in it. (The format: safetensors_header.h.)
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

struct TensorFile {
  // float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8 or bool
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Reads a whole file: contiguous host tensors that need no gradient, in the order in which the file holds
// them. Whatever is wrong, a missing file or a hostile one, throws WeightsError with the file's name, what
// was found and what was expected; the tensors never take more memory than the file has bytes.
TensorFile load_safetensors(const std::filesystem::path& path);

// Writes tensors of any device and any strides, row by row; waits for the device. Under `path` there is at
// any moment either what was there before or the whole new file: it is written beside it under another name,
// handed to the disk, then renamed. A file that is replaced hands its permissions on, and a link stays a
// link. Throws OutputError, and leaves nothing behind, when the path cannot be written, exists (unless
// `overwrite`), or the disk is full; also for tensors that the format cannot hold, before anything is
// written: undefined, on no device (meta), of other dtypes or layouts, two of one name.
void save_safetensors(const std::filesystem::path& path, const TensorFile& file, bool overwrite);

// Throws the OutputError that saving would end in because of the path, for a look before the work of hours.
// Leaves everything as it is.
void check_can_save(const std::filesystem::path& path, bool overwrite);

}  // namespace lockstep
