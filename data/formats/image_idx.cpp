#include <lockstep/data/formats/image_idx.h>

#include <utility>

#include <lockstep/data/dataset.h>
#include <lockstep/data/fashion_mnist.h>

namespace lockstep {
namespace {

// No data set of this form has more rows; an image file of this many takes 784 MB.
constexpr int64_t kMaxRows = 1'000'000;

IdxReader open(const std::filesystem::path& path, std::vector<int64_t> row) {
  return {path, {std::move(row), kMaxRows}, {damaged_hint(path), std::string(kUnfitHint)}};
}

}  // namespace

std::string damaged_hint(const std::filesystem::path& path) {
  if (path.parent_path() == kDebianFashionMnist) {
    return "put the published file in its place (apt-get install --reinstall dataset-fashion-mnist)";
  }
  return "put a whole copy of the file in its place";
}

IdxReader open_images(const std::filesystem::path& path) { return open(path, {kImageSide, kImageSide}); }

IdxReader open_labels(const std::filesystem::path& path) { return open(path, {}); }

}  // namespace lockstep
