// Fuzzes whole safetensors files.
#include <lockstep/data/safetensors.h>
#include <lockstep/tests/fuzz/allocations.h>
#include <lockstep/tests/fuzz/harness.h>

using namespace lockstep;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = fuzz::text_of(data, size);
  const fuzz::MemoryFile input(bytes);
  TensorFile file;
  if (!fuzz::accepted_within_memory(bytes.size(), [&] { file = load_safetensors(input.path()); })) return 0;
  // The tensors follow one another without gaps to the end of the file.
  std::string values;
  for (const auto& [name, tensor] : file.tensors) {
    require(tensor.is_contiguous() && tensor.is_cpu() && !tensor.requires_grad(), "tensors are plain");
    values.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  require(bytes.ends_with(values), "tensors hold what the file does");
  fuzz::last_outcome += std::to_string(file.tensors.size());
  return 0;
}
