// A data set of any tensors in one safetensors file, which three lines of Python write:
//
//   from safetensors.torch import save_file
//   save_file({"train.X": X, "train.y": y, "test.X": X_test, "test.y": y_test}, "mine.safetensors")
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include <lockstep/data/training_data.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Rows in host memory. Both batches have one spec: inputs, then targets, each in order of their names.
struct TensorData {
  std::string name = {};  // of the file, without its ending
  Batch train = {}, test = {};
  // As those of TrainingData: all integers from 0 to the largest label of `train` and of `test`.
  std::optional<int64_t> classes = {};
  std::string no_classes = {};
};

// Returns the first rows of each, whose memory it shares. They have as many classes as all rows, and where
// these have none, those that they have themselves. Throws c10::Error for more rows than there are.
TensorData first_rows(TensorData data, int64_t train, int64_t test);

// Reads tensors train.NAME and test.NAME, in the dtypes that they have; the first dimension counts rows.
// Tensors named in `targets`, without "train." and "test.", are targets, all others inputs. No names: y is
// the target, if there is one.
//
// Throws DataError, with the file's name, what was found and what was expected: for a missing, damaged or
// hostile file; other names; no tensors of train or of test; a tensor that only one of them has, or that has
// other dtypes or sizes of rows there; other numbers of rows within one of them; numbers instead of rows, no
// rows, rows without numbers; no input; a target that is not there. All but damage is found before values are
// read. before_values: is told then how many bytes these have; what it throws, is thrown.
TensorData load_tensor_data(const std::filesystem::path& path, std::span<const std::string> targets = {},
                            const std::function<void(int64_t bytes)>& before_values = {});

// Returns these rows, whose memory it shares, as training sees them. Looks at each number of floats.
TrainingData as_training_data(const TensorData& data);

}  // namespace lockstep
