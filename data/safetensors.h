// Saves and loads named tensors in safetensors files. Such a file is data only: reading it runs no code from
// it. (The format: https://huggingface.co/docs/safetensors.)
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <lockstep/support/tensor_allocator.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct TensorFile {
  // dtypes: float64, float32, float16, bfloat16, complex64, the float8 kinds e4m3fn, e5m2, e4m3fnuz, e5m2fnuz
  // and e8m0fnu, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Reads a whole file into contiguous host tensors that need no gradient, in the file's order. Throws
// WeightsError, with the file's name, what was found and what was expected, for a missing, damaged or hostile
// file. The tensors never take more memory than the file has bytes. check: is given what
// read_safetensors_shapes() returns, before values are read; what it throws, is thrown. memory: for the
// tensors.
TensorFile load_safetensors(const std::filesystem::path& path,
                            const std::function<void(const TensorFile& shapes)>& check = {},
                            const TensorAllocator& memory = heap_memory());

// Reads the header alone: the same tensors without values, on the meta device. Throws as load_safetensors()
// does, but for values.
TensorFile read_safetensors_shapes(const std::filesystem::path& path);

// Writes tensors of any device and any strides, row by row; waits for the device. At any moment `path` is the
// old file or the whole new one: the new file is written beside it under another name, synchronised to the
// disk, then renamed. It takes over the permissions of a file that it replaces, and a link stays a link.
//
// Throws OutputError, and leaves nothing behind, when the path cannot be written, exists (unless
// `overwrite`), or the disk is full. Throws it before writing for tensors that the format cannot hold:
// undefined, on no device (meta), of other dtypes or layouts, two with the same name.
void save_safetensors(const std::filesystem::path& path, const TensorFile& file, bool overwrite);

// Passes the bytes of such a file to `write`, piece by piece. Waits for the device. Throws OutputError for
// tensors that the format cannot hold, before the first piece, and what `write` throws.
void write_safetensors(const TensorFile& file, const std::function<void(std::span<const std::byte>)>& write);

// Throws the OutputError that saving would throw because of the tensors or the metadata. Copies nothing.
void check_can_save(const TensorFile& file);

// Throws the OutputError that saving would throw because of the path. For a check before hours of work.
// Changes nothing.
void check_can_save(const std::filesystem::path& path, bool overwrite);

}  // namespace lockstep
