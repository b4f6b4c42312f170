// Folders of images as `lockstep data show` looks at them.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/app/commands/data_show_folder.h>
#include <lockstep/tests/data/images/image_tree.h>
#include <lockstep/tests/data/images/png_file.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

DataSummary look_at(const ImageTree& tree, const DataFlags& flags = {}) {
  return look_at_folder(tree.path().string(), flags, /*sheet=*/false).summary;
}

bool has_notice(const DataSummary& summary, const std::string& words) {
  return std::ranges::any_of(summary.notices,
                             [&](const auto& notice) { return notice.find(words) != std::string::npos; });
}

// Two grey images for training and one for testing.
struct GreyImages : ImageTree {
  GreyImages() {
    add("train/cat/1.png", png_file(1, 1, 2, {'\0', '\xff'}));
    add("train/dog/1.png", png_file(1, 1, 2, {'\x33', '\x33'}));
    add("test/cat/1.png", png_file(1, 1, 2, {'\x01', '\x02'}));
  }
};

}  // namespace

TEST_CASE("a folder of images has counts per class, sizes, formats, mean and deviation") {
  const auto shown = look_at(GreyImages());
  CHECK(shown.kind == "image folder");
  CHECK(shown.train_rows == 2);
  CHECK(shown.test_rows == 1);
  REQUIRE(shown.classes.size() == 2);
  CHECK(shown.classes[0].name == "cat");
  CHECK(shown.classes[0].train == 1);
  CHECK(shown.classes[0].test == 1);
  CHECK(shown.classes[1].test == 0);
  // 0, 255, 51 and 51 of the training images
  REQUIRE(shown.mean.size() == 1);
  CHECK(shown.mean[0] == Approx((0 + 1 + .2 + .2) / 4));
  CHECK(shown.deviation[0] == Approx(std::sqrt((0 + 1 + .04 + .04) / 4 - .35 * .35)));
  REQUIRE(shown.files.has_value());
  CHECK(shown.files->least_width == 2);
  CHECK(shown.files->most_height == 1);
  CHECK(shown.files->kinds == std::map<std::string, int64_t>{{"PNG grey", 3}});
  CHECK(shown.digest.size() == 64);
  CHECK(shown.unreadable.empty());
}

TEST_CASE("images of one value have deviation 0") {
  const ImageTree tree;
  tree.add("train/cat/1.png", png_file(1, 1, 2, {'\x33', '\x33'}));
  const auto shown = look_at(tree);
  CHECK(shown.mean == std::vector<double>{.2});
  CHECK(shown.deviation == std::vector<double>{0});
}

TEST_CASE("images of several sizes and colours are looked at without a size") {
  const GreyImages tree;
  tree.add("train/dog/2.png", png_file(3, 4, 3, std::string(36, '\x40')));
  const auto shown = look_at(tree);
  CHECK(shown.mean.size() == 3);
  CHECK(shown.files->least_width == 2);
  CHECK(shown.files->most_width == 3);
  CHECK(shown.files->least_height == 1);
  CHECK(shown.files->most_height == 4);
  CHECK(shown.files->kinds == std::map<std::string, int64_t>{{"PNG colour", 1}, {"PNG grey", 3}});
  CHECK(has_notice(shown, "several sizes"));
  CHECK(shown.tensors.empty());
  const auto resized = look_at(tree, {.image_size = 8});
  CHECK_FALSE(has_notice(resized, "several sizes"));
  REQUIRE(resized.tensors.size() == 2);
  CHECK(resized.tensors[0] == "images Byte [n, 3, 8, 8]");
}

TEST_CASE("each file that cannot be read is named, and counts for no class") {
  const GreyImages tree;
  tree.add("train/dog/bad.png", "no image");
  tree.add("train/dog/cut.png", png_file(1, 1, 2, "ab").substr(0, 50));
  tree.add("test/dog/empty.png", "");
  tree.add("test/dog/x.gif", "GIF89a");
  std::filesystem::create_symlink("none", tree.path() / "test/dog/nowhere.png");
  const auto shown = look_at(tree);
  CHECK(shown.classes[1].train == 1);
  CHECK(shown.classes[1].test == 0);
  for (const auto* name : {"train/dog/bad.png", "train/dog/cut.png", "test/dog/empty.png", "test/dog/x.gif",
                           "test/dog/nowhere.png"}) {
    INFO(name);
    CHECK(std::ranges::count_if(shown.unreadable, [&](const auto& fault) {
            return fault.starts_with((tree.path() / name).string() + " ");
          }) == 1);
  }
  CHECK(shown.unreadable.size() == 5);
  CHECK_FALSE(has_notice(shown, "unreadable"));  // each is named
}

TEST_CASE("what a training refuses is said, and looked at all the same") {
  const GreyImages tree;
  tree.add("test/eel/1.png", png_file(1, 1, 2, "ab"));
  std::filesystem::create_directories(tree.path() / "train/fox");
  std::filesystem::copy_file(tree.path() / "train/dog/1.png", tree.path() / "test/cat/same.png");
  const auto shown = look_at(tree);
  REQUIRE(shown.classes.size() == 4);
  CHECK(shown.classes[2].name == "eel");
  CHECK(shown.classes[2].test == 1);
  CHECK(has_notice(shown, "class 'eel' is only in"));
  CHECK(has_notice(shown, "train/fox holds no images"));
  CHECK(has_notice(shown, "1 image for testing is among those for training"));

  const ImageTree unsplit;
  unsplit.add("cat/1.png", png_file(1, 1, 1, "a"));
  const auto all = look_at(unsplit);
  CHECK(all.train_rows == 1);
  CHECK(all.test_rows == 0);
  CHECK(has_notice(all, "no test set"));
}

TEST_CASE("images are resized where that is asked for, and for a sheet where sizes differ") {
  const GreyImages tree;
  CHECK(look_at_folder(tree.path().string(), {}, /*sheet=*/true).sheet->width == 10 * (2 + 2) + 2);
  CHECK(look_at_folder(tree.path().string(), {.image_size = 8}, /*sheet=*/true).sheet->width ==
        10 * (8 + 2) + 2);
  tree.add("train/dog/2.png", png_file(3, 300, 200, std::string(180000, '\x40')));
  const auto sheet = look_at_folder(tree.path().string(), {}, /*sheet=*/true).sheet;
  CHECK(sheet->width == 10 * (96 + 2) + 2);
  CHECK(sheet->height == 2 * (96 + 2) + 2);
}
