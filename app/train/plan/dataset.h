// The data set a command works on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/app/files/network_facts.h>
#include <lockstep/app/train/plan/data_flags.h>
#include <lockstep/data/images/normalize.h>
#include <lockstep/data/known_data.h>
#include <lockstep/models/factory.h>

namespace lockstep {

class Program;

struct LoadedData {
  TrainingData set = {};      // images of files are bytes
  std::string origin = {};    // the folder or file, or how it was made
  int64_t all_test_rows = 0;  // `set` may hold only the first of them
  // Hashes of the rows in `set`, of image files of their names and sizes. Their number is compared besides.
  std::string train_hash = {}, test_hash = {};
  std::string train_times = {};  // hash_of_times() of image files for training; empty: no such files

  DataFlags flags = {};     // as they were given
  std::string kind = {};    // "IDX", "CIFAR-10", "CIFAR-100", "image folder", "safetensors", "synthetic"
  std::string digest = {};  // SHA-256 of the files' names and sizes; empty: no files, or one
  std::vector<std::string> notices = {};  // what is odd in the files: one sentence each, without a full stop
  std::vector<std::string> class_notices = {};  // the same, where labels are taken as classes
  std::vector<std::string> unreadable = {};     // image files that were left out, as of ImageFolder
  bool streamed = false;                        // the training rows are decoded while training
  // What streams hold at most: for each distinct device of rows that are decoded ahead and of images that
  // workers are decoding, and of the image that each replica decodes itself.
  int64_t ahead_bytes = 0, decoding_bytes = 0;
  // Returns a sentence for the images that are in train and in test, too; empty: there are none. Null:
  // unknown.
  std::function<std::string()> same_rows = {};
  std::string held = {};  // how image files are held, for people; empty: in memory, as they are

  bool test_limited() const { return set.test.rows < all_test_rows; }

  // The number of rows to evaluate on: "10,000", or "the first 1,000 of 10,000".
  std::string test_count() const;
};

// Finds out what flags.path, or without one data_folder(), holds, and reads it. targets: as of
// load_tensor_data(); other data have none to choose.
//
// Images of a folder that fit into flags.data_memory are decoded into memory, others when a batch asks for
// them; test images are decoded into memory, too, if they take half of it at most. Without flags.channels
// they have one channel if all files are grey, else three.
//
// processes_on_host: that read the same data at the same time, and share the host's memory.
//
// Throws UsageError for flags that such data do not have and for a limit above the number of rows,
// MemoryError for a file that memory cannot hold, and what reading the files throws.
LoadedData load_data(const DataFlags& flags, uint64_t seed, std::span<const std::string> targets = {},
                     int processes_on_host = 1);

// Returns the bytes for decoded images where no flag names them: half of what is free, shared out among the
// processes of the host. free_bytes: 0 where nobody knows. Then nothing is too much.
int64_t default_data_memory(int64_t free_bytes, int processes_on_host);

// Returns the numbers of training and test rows to use. Throws UsageError for a limit above all rows.
std::pair<int64_t, int64_t> used_rows(const DataFlags& flags, int64_t train_rows, int64_t test_rows,
                                      std::string_view noun);

// Returns flags.workers, by default the cores, 8 at most.
int decoding_threads(const DataFlags& flags);

// Returns the last part of the path, also of "." and of one that ends with a slash.
std::string name_of_folder(const std::string& folder);

// "img/s" if rows are images, else "rows/s".
std::string speed_unit(const TrainingData& data);

// Returns what a network for these data needs to be used without them, but for image size and normalisation.
// Nothing for data with several inputs, with sizes that differ between batches, without classes or with more
// than 100,000. Call it before as_images().
std::optional<NetworkFacts> facts_of(const TrainingData& data);

// Returns the name of the one input of images (channels, height, width) of bytes; nothing where there is
// none, or several.
std::optional<std::string> image_input_of(const TrainingData& data);

// Returns the data as the models of models/factory.h take them: bytes become floats. Throws DataError, which
// names the model, unless a row is one image (channels, height, width) of floats or uint8 with one label, and
// UsageError for a normalisation of other channels, or of images that are no bytes.
TrainingData as_images(TrainingData data, const std::string& model, const Normalization& normalization = {});

// Returns the data as the program takes them: the one input of images of bytes becomes floats where the
// program's input is of floats. All else stays. Throws UsageError as as_images() does.
TrainingData as_inputs(TrainingData data, const Program& program, const Normalization& normalization = {});

// Returns the spec of this model for such rows, which as_images() has returned.
ModelSpec model_spec(const std::string& model, const TrainingData& data);

}  // namespace lockstep
