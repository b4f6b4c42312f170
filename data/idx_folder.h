// A data set of the MNIST family: four IDX files, gzipped or plain, in one folder.
#pragma once

#include <filesystem>

#include <lockstep/data/dataset.h>

namespace lockstep {

// Where the four files are.
struct IdxFiles {
  std::filesystem::path train_images, train_labels, test_images, test_labels;
};

// Finds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte.
// A dot may stand before "idx", and .gz at the end; a plain file is preferred. They lie in the folder, or as
// torchvision keeps them, in its raw/ or NAME/raw/. Throws DataError, whose hint fits what is there instead.
IdxFiles find_idx_files(const std::filesystem::path& folder);

// Reads and checks all four files. The set is called Fashion-MNIST if its images and labels are the published
// ones, else by its folder; "raw" is no name, so that the folder above gives it. Throws DataError, which
// names the file, what is wrong with it and what to do: a missing or truncated file, a wrong magic number,
// type, rank or dimension, trailing bytes, a wrong gzip checksum, a label above 9, or different numbers of
// images and labels.
Dataset load_idx_folder(const std::filesystem::path& folder);

}  // namespace lockstep
