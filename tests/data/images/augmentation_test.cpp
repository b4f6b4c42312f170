// Augmentations: their texts, and what their bytes are. tests/reference/augmented_images.py is the twin.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/images/augment_rows.h>
#include <lockstep/data/images/augmentation.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/sha256.h>
#include <lockstep/tests/data/images/image_reference.h>
#include <lockstep/tests/support/reference_path.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using ImageBytes = std::vector<uint8_t>;

ImageBytes image_of_row(int64_t row, const ImageSizes& shape) {
  ImageBytes image(static_cast<size_t>(shape.channels * shape.height * shape.width));
  for (size_t p = 0; p < image.size(); ++p) {
    image[p] = static_cast<uint8_t>((static_cast<uint64_t>(row) * 31 + p * 7 + p * p / 5) % 256);
  }
  return image;
}

// One image of the data set, as the only one of a batch.
ImageBytes augmented(const ImageBytes& image, const ImageSizes& shape, const AugmentationDraws& draws,
                     int64_t row) {
  ImageBytes result(image.size());
  augment_rows({image.data(), &row, 1, /*by_row=*/0, shape, draws, nullptr}, result.data(), /*threads=*/1);
  return result;
}

// The result for the first row whose view is as wanted.
template <class Wanted>
ImageBytes augmented_when(const ImageBytes& image, const ImageSizes& shape, const std::string& text,
                          Wanted wanted) {
  const auto draws = draws_of(parse_augmentation(text), 1, 0);
  for (int64_t row = 0; row < 10'000; ++row) {
    if (wanted(draw_view(draws, shape, row))) return augmented(image, shape, draws, row);
  }
  FAIL("no row has such a view");
  return {};
}

}  // namespace

TEST_CASE("augmented images have the draws and the bytes that Python computes") {
  std::ifstream file(reference_path("augmented_images.txt"));
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    INFO(line);
    std::istringstream words(line);
    std::string text, digest;
    uint64_t seed;
    int64_t epoch, row;
    ImageSizes shape;
    AugmentedView expected;
    REQUIRE(words >> text >> seed >> epoch >> row >> shape.channels >> shape.height >> shape.width);
    REQUIRE(words >> expected.top >> expected.left >> expected.height >> expected.width);
    REQUIRE(words >> expected.flipped >> digest);
    const auto draws = draws_of(parse_augmentation(text), seed, epoch);
    const auto view = draw_view(draws, shape, row);
    CHECK(view.top == expected.top);
    CHECK(view.left == expected.left);
    CHECK(view.height == expected.height);
    CHECK(view.width == expected.width);
    CHECK(view.flipped == expected.flipped);
    const auto bytes = augmented(image_of_row(row, shape), shape, draws, row);
    Sha256 hash;
    hash.update(std::as_bytes(std::span(bytes)));
    CHECK(hash.hex() == digest);
  }
  CHECK(cases == 165);
}

TEST_CASE("crops, flips and cutouts of a small image are those by hand") {
  const ImageSizes shape = {1, 3, 3};
  const ImageBytes image = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto at = [](int top, int left) {
    return [=](const AugmentedView& view) { return view.top == top && view.left == left; };
  };
  CHECK(augmented_when(image, shape, "crop:1", at(0, 0)) == image);
  CHECK(augmented_when(image, shape, "crop:1", at(1, -1)) == ImageBytes{0, 4, 5, 0, 7, 8, 0, 0, 0});
  CHECK(augmented_when(image, shape, "crop:1", at(-1, 1)) == ImageBytes{0, 0, 0, 2, 3, 0, 5, 6, 0});
  CHECK(augmented_when(image, shape, "crop:5", at(-4, 0)) == ImageBytes(9));
  const auto flipped = [](const AugmentedView& view) { return view.flipped == 1; };
  CHECK(augmented_when(image, shape, "flip", flipped) == ImageBytes{3, 2, 1, 6, 5, 4, 9, 8, 7});
  const auto both = [&](const AugmentedView& view) { return flipped(view) && at(1, -1)(view); };
  CHECK(augmented_when(image, shape, "crop:1,flip", both) == ImageBytes{5, 4, 0, 8, 7, 0, 0, 0, 0});
  const auto black_at = [](int top, int left) {
    return [=](const AugmentedView& view) { return view.black_top == top && view.black_left == left; };
  };
  CHECK(augmented_when(image, shape, "cutout:2", black_at(1, 1)) == ImageBytes{1, 2, 3, 4, 0, 0, 7, 0, 0});
  CHECK(augmented_when(image, shape, "cutout:2", black_at(-1, 0)) == ImageBytes{0, 0, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("a part is enlarged between the centres of its pixels") {
  // One line of two pixels, 0 and 100, as four: 0, 25, 75, 100.
  const uint8_t plane[] = {9, 0, 100, 9};
  const ImageSizes shape = {1, 1, 4};
  const AugmentedView view = {0, 1, 1, 2, 0, 0, 0, 0};
  ImageBytes found;
  for (int x = 0; x < 4; ++x) found.push_back(augmented_pixel(view, shape, plane, 0, x));
  CHECK(found == ImageBytes{0, 25, 75, 100});
}

TEST_CASE("draws are spread evenly over places, and parts stay inside the image") {
  constexpr int kRows = 18'000;
  const ImageSizes shape = {1, 16, 20};
  const auto crop = draws_of(parse_augmentation("crop:1,flip"), 3, 2);
  std::vector<int> places(9);
  int flips = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto view = draw_view(crop, shape, row);
    ++places.at(static_cast<size_t>(3 * (view.top + 1) + view.left + 1));
    flips += view.flipped;
  }
  for (const int times : places) CHECK(std::abs(times - 2000) < 5 * 42);  // binomial(18000, 1/9)
  CHECK(std::abs(flips - 9000) < 5 * 67);                                 // binomial(18000, 1/2)
  const auto resized = draws_of(parse_augmentation("resized-crop:.25"), 3, 2);
  int outside = 0;
  double share = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto view = draw_view(resized, shape, row);
    outside += view.top < 0 || view.left < 0 || view.top + view.height > 16 || view.left + view.width > 20;
    share += view.height * view.width / 320. / kRows;
  }
  CHECK(outside == 0);
  CHECK(share > .5);  // the mean of .25 .. 1 is .625, less what does not fit
  CHECK(share < .7);
}

#ifdef __SANITIZE_THREAD__  // it does not see that OpenMP's threads wait for each other
constexpr int64_t kThreads[] = {1};
#else
constexpr int64_t kThreads[] = {1, 2, 3, 64};
#endif

TEST_CASE("each epoch and each seed has its own draws, threads and places in a batch have none") {
  const ImageSizes shape = {3, 8, 8};
  const auto augmentation = parse_augmentation("crop:2,flip,cutout:3");
  std::vector<int64_t> rows(40);
  std::iota(rows.begin(), rows.end(), 0);
  ImageBytes images;
  for (const auto row : rows) {
    const auto image = image_of_row(row, shape);
    images.insert(images.end(), image.begin(), image.end());
  }
  std::set<ImageBytes> results;
  for (const uint64_t seed : {0, 1}) {
    for (const int64_t epoch : {0, 1, 2}) {
      const auto draws = draws_of(augmentation, seed, epoch);
      ImageBytes all;
      for (const int64_t threads : kThreads) {
        ImageBytes found(images.size());
        augment_rows({images.data(), rows.data(), 40, 1, shape, draws, nullptr}, found.data(), threads);
        if (all.empty()) all = found;
        CHECK(found == all);
      }
      for (const int64_t row : {0, 17, 39}) {
        const auto alone = augmented(image_of_row(row, shape), shape, draws, row);
        CHECK(std::equal(alone.begin(), alone.end(), all.begin() + row * 192));
      }
      results.insert(all);
    }
  }
  CHECK(results.size() == 6);
}

TEST_CASE("a byte becomes the value of its channel, a black one, too") {
  const ImageSizes shape = {2, 1, 2};
  const ImageBytes images = {0, 255, 7, 8};
  std::vector<float> values(512);
  std::iota(values.begin(), values.end(), .5f);
  const int64_t row = 0;
  std::vector<float> X(4);
  augment_rows({images.data(), &row, 1, 0, shape, {}, values.data()}, X.data(), 1);
  CHECK(X == std::vector<float>{.5f, 255.5f, 263.5f, 264.5f});
  augment_rows({images.data(), &row, 1, 0, shape, {.cutout = 9}, values.data()}, X.data(), 1);
  CHECK(X == std::vector<float>{.5f, .5f, 256.5f, 256.5f});
}

TEST_CASE("texts of augmentations are read and written") {
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"none", "none"},
      {"flip,crop:4", "crop:4,flip"},
      {"cutout:8,flip,resized-crop", "resized-crop:0.08,flip,cutout:8"},
      {"resized-crop:.25", "resized-crop:0.25"}};
  for (const auto& [text, written] : texts) {
    INFO(text);
    CHECK(to_string(parse_augmentation(text)) == written);
    CHECK(to_string(parse_augmentation(written)) == written);
    CHECK(parse_augmentation(text).any() == (text != "none"));
  }
}

TEST_CASE("texts that are no augmentation are refused") {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"", "'' names no augmentation where one is expected"},
      {"flop", "unknown augmentation 'flop'"},
      {"flip,", "'flip,' names no augmentation where one is expected"},
      {"flip,none", "augmentation none stands beside others"},
      {"crop", "augmentation crop needs a number of pixels, 1 to 32767"},
      {"crop:0", "augmentation crop has '0', not a number of pixels, 1 to 32767"},
      {"cutout:1e3", "augmentation cutout has '1e3', not a number of pixels, 1 to 32767"},
      {"flip:2", "augmentation flip takes no '2'"},
      {"flip,flip", "augmentation flip comes twice"},
      {"resized-crop:0", "augmentation resized-crop has '0', not a share of the area, above 0 and at most 1"},
      {"resized-crop:nan",
       "augmentation resized-crop has 'nan', not a share of the area, above 0 and at most 1"},
      {"crop:4,resized-crop", "augmentations crop and resized-crop both choose a part of the image"}};
  for (const auto& [text, refusal] : refused) {
    INFO(text);
    CHECK(refusal_of<UsageError>([&, &own = text] { parse_augmentation(own); }) == refusal);
  }
  CHECK_THROWS_AS(check({.crop = -1}), UsageError);
  CHECK_THROWS_AS(check({.resized_crop = ResizedCrop{2}}), UsageError);
  CHECK_NOTHROW(check({.crop = 4, .flip = true}));
}

TEST_CASE("the draws change images as torchvision's crop, flip and resized_crop do with them") {
  int64_t resized = 0, other = 0;  // pixels
  for (const auto& entry : reference("torchvision_images.json")) {
    const auto text = entry["augmentation"].get<std::string>();
    const auto shape = entry["shape"].get<std::vector<int>>();
    const auto row = entry["row"].get<int64_t>();
    INFO(text << " of row " << row << " in " << entry["shape"]);
    const ImageSizes sizes{shape[0], shape[1], shape[2]};
    const auto found = augmented(image_of_row(row, sizes), sizes,
                                 draws_of(parse_augmentation(text), entry["seed"], entry["epoch"]), row);
    const auto expected = bytes_of(entry["pixels"]);
    REQUIRE(found.size() == expected.size());
    const bool resizes = text.find("resized") != std::string::npos;
    for (size_t p = 0; p < found.size(); ++p) {
      const int difference = std::abs(int{found[p]} - int{expected[p]});
      if (difference > (resizes ? 1 : 0)) FAIL("pixel " << p << " is " << int{found[p]});
      resized += resizes;
      other += resizes && difference > 0;
    }
  }
  CHECK(resized > 5'000);
  CHECK(other < resized / 100);  // weights are rounded from whole numbers here, from doubles there
}
