// Data that were read, and where they come from.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/app/train/plan/data_flags.h>
#include <lockstep/data/training_data.h>

namespace lockstep {

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
  // Streams hold these at most: for each distinct device of rows that are decoded ahead and of images that
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

}  // namespace lockstep
