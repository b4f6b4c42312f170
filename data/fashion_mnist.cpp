#include <lockstep/data/fashion_mnist.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <lockstep/data/formats/image_idx.h>
#include <lockstep/data/idx_files.h>
#include <lockstep/support/files/sha256.h>

namespace lockstep {
namespace {

// The SHA-256 of the decompressed bytes.
constexpr std::string_view kTrainImages = "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888";
constexpr std::string_view kTrainLabels = "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9";
constexpr std::string_view kTestImages = "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b";
constexpr std::string_view kTestLabels = "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34";

std::string hash_of(IdxReader reader) {
  Sha256 hash;
  hash.update(reader.header());
  std::vector<std::byte> buffer(1 << 18);
  while (reader.bytes_left() > 0) {
    const auto part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), reader.bytes_left()));
    reader.read(part);
    hash.update(part);
  }
  return hash.hex();
}

}  // namespace

std::vector<FileCheck> verify_fashion_mnist(const std::filesystem::path& folder) {
  const auto files = find_idx_files(folder);
  return {
      {files.train_images, hash_of(open_images(files.train_images)), std::string(kTrainImages)},
      {files.train_labels, hash_of(open_labels(files.train_labels)), std::string(kTrainLabels)},
      {files.test_images, hash_of(open_images(files.test_images)), std::string(kTestImages)},
      {files.test_labels, hash_of(open_labels(files.test_labels)), std::string(kTestLabels)},
  };
}

}  // namespace lockstep
