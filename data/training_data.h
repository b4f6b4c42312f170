// A data set as training sees it: rows of named tensors, wherever they come from.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// Rows for training or for testing.
struct DataRows {
  int64_t rows = 0;
  SourceFactory sources = {};
  // Sources of the same rows for those that are held out for validation: their messages say so. Null:
  // sources.
  SourceFactory held_out = {};
  // Returns a hash of the first `count` rows. Other bytes have other hashes.
  std::function<std::string(int64_t count)> hash_of_first = {};
  // Returns the one target of each row, without reading inputs. Null: the source has to be read for it.
  std::function<std::vector<int64_t>()> labels = {};
};

// Numbers that a loss may refuse, or answer with NaN.
struct RowFaults {
  // Returns the first integer of the one target that is neither a class, 0 .. classes - 1, nor `ignored`,
  // such as "train.y has 7 in row 12"; empty: there is none. Null for data whose targets were never looked
  // at.
  std::function<std::string(int64_t classes, std::optional<int64_t> ignored)> outside = {};
  // The first number of a tensor of floats that is NaN or infinite: "train.X has nan in row 3". Empty: none.
  std::string not_finite = {};
};

struct TrainingData {
  std::string name = {};
  BatchSpec spec = {};  // of the sources of train and of test: inputs, then targets
  // Set if there is one target with one integer per row, 0 .. classes - 1.
  std::optional<int64_t> classes = {};
  std::vector<std::string> class_names = {};  // of the first classes; those without one have their numbers
  std::string no_classes = {};                // why there are none, such as "y is Float [n]"
  RowFaults train_faults = {}, test_faults = {};
  std::string row_noun = "row";  // what messages call a row; its plural ends with s
  std::string content = {};      // the tensors as the files have them, for messages; empty: row_noun says it
  DataRows train = {}, test = {};
  std::optional<DataRows> validation = {};  // held out of the training rows
};

// Returns the number of classes. Throws DataError, which says why there are none.
int64_t class_count(const TrainingData& data);

// Returns the data with this input of uint8 as float, divided by 255, as pixels are given to networks. Other
// types stay as they are. Throws UsageError if there is no such tensor.
TrainingData with_pixels_as_floats(TrainingData data, std::string_view input);

}  // namespace lockstep
