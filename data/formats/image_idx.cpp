#include <lockstep/data/formats/image_idx.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include <lockstep/data/fashion_mnist.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int64_t kMaxRows = 10'000'000;  // EMNIST, the largest of the family, has 700,000
constexpr int64_t kMostChannels = 4;

IdxHints hints_of(const std::filesystem::path& path) {
  return {.damaged = damaged_hint(path), .unfit = std::string(kUnfitHint)};
}

}  // namespace

std::string damaged_hint(const std::filesystem::path& path) {
  if (path.parent_path() == kDebianFashionMnist) {
    return "put the published file in its place (apt-get install --reinstall dataset-fashion-mnist)";
  }
  return "put a whole copy of the file in its place";
}

IdxReader open_images(const std::filesystem::path& path) {
  const std::array shapes = {IdxShape{{kAnyLength, kAnyLength}, kMaxRows},
                             IdxShape{{kAnyLength, kAnyLength, kAnyLength}, kMaxRows}};
  IdxReader reader(path, shapes, hints_of(path));
  const auto& row = reader.row();
  if (row.size() == 3 && row[0] > kMostChannels) {
    const std::string hint = row[2] <= kMostChannels ? "put the channels before the height, as with numpy's "
                                                       "images.transpose(0, 3, 1, 2)"
                                                     : std::string(kUnfitHint);
    throw DataError(fmt::format("{} has images of {} values, whose first number is that of channels: 1 to {} "
                                "were expected",
                                path.string(), fmt::join(row, " x "), kMostChannels),
                    hint);
  }
  return reader;
}

IdxReader open_labels(const std::filesystem::path& path) {
  return {path, IdxShape{{}, kMaxRows}, hints_of(path)};
}

std::vector<int64_t> image_shape(const IdxReader& images) {
  auto shape = images.row();
  if (shape.size() == 2) shape.insert(shape.begin(), 1);
  return shape;
}

}  // namespace lockstep
