// Fuzzes CIFAR's binary files, and files of names of classes. Any bytes are records of both kinds if their
// number is right.
#include <algorithm>
#include <set>
#include <vector>

#include <lockstep/data/formats/cifar.h>
#include <lockstep/data/formats/class_names.h>
#include <lockstep/tests/fuzz/allocations.h>
#include <lockstep/tests/fuzz/harness.h>

using namespace lockstep;
using fuzz::require;

namespace {

void read_records(const std::string& bytes, int label_bytes) {
  const fuzz::MemoryFile file(bytes);
  const auto record = static_cast<size_t>(label_bytes + kCifarPixels);
  const bool taken = fuzz::accepted_within_memory(bytes.size(), [&] {
    const auto rows = static_cast<size_t>(cifar_rows(file.path(), label_bytes));
    std::vector<uint8_t> images(rows * kCifarPixels), labels(rows);
    read_cifar(file.path(), label_bytes, images, labels);
    std::string whole;
    for (size_t row = 0; row < rows; ++row) {
      whole += bytes.substr(row * record, static_cast<size_t>(label_bytes) - 1);
      whole += static_cast<char>(labels[row]);
      whole.append(reinterpret_cast<const char*>(images.data()) + row * kCifarPixels, kCifarPixels);
    }
    require(whole == bytes, "labels and pixels are those of the file");
  });
  require(taken == (!bytes.empty() && bytes.size() % record == 0), "whole records are taken");
}

void read_names(const std::string& bytes) {
  const fuzz::MemoryFile file(bytes);
  fuzz::accepted_within_memory(bytes.size(), [&] {
    const auto names = read_class_names(file.path());
    require(std::set(names.begin(), names.end()).size() == names.size(), "each name is there once");
    require(std::ranges::none_of(names, [](const auto& name) { return name.empty(); }), "no name is empty");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = fuzz::text_of(data, size);
  read_records(bytes, 1);
  read_records(bytes, 2);
  read_names(bytes);
  return 0;
}
