// CIFAR-10 and CIFAR-100 in their binary form, and other images of 3 channels of 32 x 32 written like them.
#pragma once

#include <filesystem>

#include <lockstep/data/dataset.h>

namespace lockstep {

// Reads CIFAR's binary files, in the folder or in its cifar-10-batches-bin/ or cifar-100-binary/. Batches may
// have any number of rows. Classes are named by batches.meta.txt or fine_label_names.txt; without it, which a
// notice says, they are 10 or 100 numbers. The coarse labels of CIFAR-100 are not read. Throws DataError,
// which names the file: a missing, empty or damaged one, or a label that has no name.
Dataset load_cifar(const std::filesystem::path& folder);

}  // namespace lockstep
