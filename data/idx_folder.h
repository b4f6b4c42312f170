// A data set in the form of the MNIST family: four IDX files, gzipped or plain, in one folder.
#pragma once

#include <filesystem>

#include <lockstep/data/dataset.h>
#include <lockstep/data/idx_files.h>

namespace lockstep {

// Reads and checks all four files, which find_idx_files() (idx_files.h) finds: images (n, height, width) or
// (n, channels, height, width) with 1 to 4 channels, in one shape for train and test, and labels (n). The set
// is called Fashion-MNIST if its images and labels are the published ones, else by the prefix of its files,
// else by its folder; "raw" is no name, so that the folder above gives it.
//
// Classes are named by the lines of classes.txt beside the files (PREFIX-classes.txt where they have one), by
// EMNIST's names for emnist-SPLIT, and by those of Fashion-MNIST for the published files; else by their
// numbers, up to the largest label. EMNIST's images are stored with rows and columns exchanged, and stay so.
//
// Throws DataError, which names the file, what is wrong with it and what to do: a missing or truncated file,
// a wrong magic number, type, rank or dimension, trailing bytes, a wrong gzip checksum, a label that has no
// name, different numbers of images and labels, or different shapes.
Dataset load_idx_folder(const std::filesystem::path& folder);

}  // namespace lockstep
