// same_in_train_and_test() of image_files.h.
#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <lockstep/data/images/file_bytes.h>
#include <lockstep/data/images/image_files.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/files/xxhash64.h>

namespace lockstep {
namespace {

std::vector<int64_t> sizes_of_images(const ImageList& files) {
  std::vector<int64_t> sizes;
  sizes.reserve(files.size());
  for (size_t i = 0; i < files.size(); ++i) sizes.push_back(files.bytes(i));
  return sizes;
}

uint64_t hash_of_image(const ImageFile& file) {
  const auto read = read_file_bytes(file.path);
  return xxhash64(std::as_bytes(std::span(read.bytes)));
}

}  // namespace

std::string same_in_train_and_test(const ImageFolder& folder) {
  const auto train_sizes = sizes_of_images(folder.train), test_sizes = sizes_of_images(folder.test);
  const std::unordered_set<int64_t> in_train(train_sizes.begin(), train_sizes.end());
  std::unordered_map<uint64_t, size_t> tested;  // hash: index of the first image
  std::vector<uint64_t> test_hashes;
  std::unordered_set<int64_t> in_test;
  for (size_t i = 0; i < folder.test.size(); ++i) {
    if (!in_train.contains(test_sizes[i])) continue;
    in_test.insert(test_sizes[i]);
    test_hashes.push_back(hash_of_image(folder.test[i]));
    tested.try_emplace(test_hashes.back(), i);
  }
  std::unordered_set<uint64_t> shared;
  std::string example;
  for (size_t i = 0; i < folder.train.size(); ++i) {
    if (!in_test.contains(train_sizes[i])) continue;
    const auto hash = hash_of_image(folder.train[i]);
    const auto same = tested.find(hash);
    if (same == tested.end() || !shared.insert(hash).second || !example.empty()) continue;
    example =
        fmt::format("{} and {}", folder.test[same->second].path.string(), folder.train[i].path.string());
  }
  int64_t count = 0;
  for (const auto hash : test_hashes) count += shared.contains(hash) ? 1 : 0;
  if (count == 0) return {};
  return fmt::format("{} for testing {} among those for training, too, such as {}", counted(count, "image"),
                     count == 1 ? "is" : "are", example);
}

}  // namespace lockstep
