// Finds the four IDX files of a data set of the MNIST family by their names.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

// Where the four files are.
struct IdxFiles {
  std::filesystem::path train_images, train_labels, test_images, test_labels;
  std::string prefix = {};  // of their names, such as "emnist-letters"; empty: they have none
};

// Finds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte.
// A dot may stand before "idx", and .gz at the end; a plain file is preferred. "test" may stand for "t10k",
// and idx4 for idx3 where images have channels. All four may begin with one PREFIX and a dash, such as
// emnist-letters-train-images-idx3-ubyte; files without a prefix come first. They lie in the folder, or as
// torchvision keeps them, in its raw/ or NAME/raw/. Where there are several prefixes, FOLDER/PREFIX names
// one. Throws DataError, whose hint fits what is there instead.
IdxFiles find_idx_files(const std::filesystem::path& folder);

// Returns whether any of the files are there, or of several data sets: find_idx_files() then returns them, or
// says what is wrong with them. Throws DataError if the folder cannot be read.
bool holds_idx_files(const std::filesystem::path& folder);

}  // namespace lockstep
