// Names of classes, and labels held against them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Reads one name per line; blank lines at the end do not count, nor does a byte order mark at the beginning.
// Throws DataError, which names the file and the line: a blank line between names, a name that stands there
// twice, one that is no UTF-8, more than 65,536 names, or a file of more than 1 MiB.
std::vector<std::string> read_class_names(const std::filesystem::path& path);

// "0", "1", ...
std::vector<std::string> numbered_classes(int64_t classes);

// The names of torchvision for a split of EMNIST: a prefix such as "emnist-letters", whose labels begin at 1,
// so that "N/A" is first. Empty for any other prefix.
std::vector<std::string> emnist_classes(const std::string& prefix);

std::vector<std::string> fashion_mnist_classes();

// Throws DataError for a label that is no class, with its row and the file.
void check_labels(std::span<const uint8_t> labels, int64_t classes, const std::filesystem::path& path);

// Returns a sentence each for rows for training that are all of one class, and for classes without rows for
// training, with such rows for testing alone among them.
std::vector<std::string> label_notices(std::span<const uint8_t> train, std::span<const uint8_t> test,
                                       const std::vector<std::string>& class_names);

// The same of the numbers of rows of each class. noun: what a row is called.
std::vector<std::string> label_notices(std::span<const int64_t> in_train, std::span<const int64_t> in_test,
                                       const std::vector<std::string>& class_names, std::string_view noun);

}  // namespace lockstep
