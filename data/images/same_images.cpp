// same_in_train_and_test() of image_files.h.
#include <fmt/format.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include <lockstep/data/images/image_files.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/xxhash64.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_image(const fs::path& path, const std::string& why) {
  throw DataError(fmt::format("cannot read {}: {}", path.string(), why),
                  "leave the files as they are while they are read");
}

std::vector<uint64_t> sizes_of_images(const std::vector<ImageFile>& files) {
  std::vector<uint64_t> sizes;
  for (const auto& file : files) {
    std::error_code error;
    sizes.push_back(fs::file_size(file.path, error));
    if (error) refuse_image(file.path, error.message());
  }
  return sizes;
}

uint64_t hash_of_image(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file) refuse_image(path, "it cannot be opened, or not to its end");
  return xxhash64(std::as_bytes(std::span(bytes)));
}

}  // namespace

std::string same_in_train_and_test(const ImageFolder& folder) {
  const auto train_sizes = sizes_of_images(folder.train), test_sizes = sizes_of_images(folder.test);
  const std::unordered_set<uint64_t> in_train(train_sizes.begin(), train_sizes.end());
  std::unordered_map<uint64_t, size_t> tested;  // hash: index of the first image
  std::vector<uint64_t> test_hashes;
  std::unordered_set<uint64_t> in_test;
  for (size_t i = 0; i < folder.test.size(); ++i) {
    if (!in_train.contains(test_sizes[i])) continue;
    in_test.insert(test_sizes[i]);
    test_hashes.push_back(hash_of_image(folder.test[i].path));
    tested.try_emplace(test_hashes.back(), i);
  }
  std::unordered_set<uint64_t> shared;
  std::string example;
  for (size_t i = 0; i < folder.train.size(); ++i) {
    if (!in_test.contains(train_sizes[i])) continue;
    const auto hash = hash_of_image(folder.train[i].path);
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
