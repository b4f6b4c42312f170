// Fuzzes data sets in safetensors files, up to a batch and a hash of their rows.
#include <torch/types.h>

#include <memory>

#include <lockstep/data/tensor_data.h>
#include <lockstep/tests/fuzz/allocations.h>
#include <lockstep/tests/fuzz/harness.h>

using namespace lockstep;
using fuzz::require;

namespace {

// Gathers the last row and the first one.
void check_rows(const DataRows& rows, const BatchSpec& spec) {
  const auto source = rows.sources(torch::kCPU);
  require(rows.rows > 0 && source->size() == rows.rows, "sets have rows");
  require(source->spec() == spec, "sources give what the data say");
  Batch batch(std::make_shared<const BatchSpec>(spec));
  source->gather(torch::tensor({rows.rows - 1, int64_t{0}}), /*epoch=*/0, batch);
  for (size_t i = 0; i < batch.size(); ++i) {
    require(batch[i].size(0) == 2 && batch[i].sizes().slice(1) == at::IntArrayRef(spec[i].row_shape) &&
                batch[i].scalar_type() == spec[i].dtype,
            "a batch has the sizes and types of its spec");
  }
  require(rows.hash_of_first(1).size() == 32, "rows have a hash");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = fuzz::text_of(data, size);
  const fuzz::MemoryFile input(bytes);
  TensorData set;
  if (!fuzz::accepted_within_memory(bytes.size(), [&] { set = load_tensor_data(input.path()); })) return 0;
  const auto training = as_training_data(set);
  require(training.spec.front().role == Role::kInput, "inputs come first");
  require(training.classes.has_value() == training.no_classes.empty(), "there are classes, or a reason");
  require(training.classes.value_or(1) > 0, "classes count");
  check_rows(training.train, training.spec);
  check_rows(training.test, training.spec);
  fuzz::last_outcome += training.content;
  return 0;
}
