#include <malloc.h>

#include <lockstep/tests/catch.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/data/images/image_list.h>
#include <lockstep/data/images/image_list_builder.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

struct Listed {
  std::string path;
  int64_t label, size, written;

  bool operator==(const Listed&) const = default;
};

std::vector<Listed> all_of(const ImageList& list) {
  std::vector<Listed> all;
  for (const auto& file : list) all.push_back({file.path.string(), file.label, file.size, file.written});
  return all;
}

const std::vector<ImageFile> kFiles = {{.path = "train/cat/1.png", .label = 0, .size = 7, .written = 5},
                                       {.path = "train/dog/1.png", .label = 1, .size = 9},
                                       {.path = "2.png", .label = 1},
                                       {.path = "train/cat/a/3.png", .label = 4, .written = 6},
                                       {.path = "/4.png", .label = -2}};
const std::vector<Listed> kListed = {{"train/cat/1.png", 0, 7, 5},
                                     {"train/dog/1.png", 1, 9, -1},
                                     {"2.png", 1, -1, -1},
                                     {"train/cat/a/3.png", 4, -1, 6},
                                     {"/4.png", -2, -1, -1}};

}  // namespace

TEST_CASE("a list of files gives what was put in, in its order") {
  const ImageList list = kFiles;
  CHECK(list.size() == 5);
  CHECK_FALSE(list.empty());
  CHECK(all_of(list) == kListed);
  CHECK(list.front().path == "train/cat/1.png");
  CHECK(list.at(4).label == -2);
  CHECK_THROWS_AS(list.at(5), std::out_of_range);
  for (size_t i = 0; i < kListed.size(); ++i) {
    CHECK(list.label(i) == kListed[i].label);
    CHECK(list.written(i) == kListed[i].written);
  }
  CHECK(ImageList().empty());
  CHECK(all_of({}).empty());
  CHECK(all_of({{.path = "a.png", .label = 3}}) == std::vector<Listed>{{"a.png", 3, -1, -1}});
}

TEST_CASE("the first files of a list are a list, also after the whole one is gone") {
  ImageList first;
  {
    const ImageList list = kFiles;
    first = list.first(2);
    CHECK(list.first(5).size() == 5);
    CHECK_THROWS_AS(list.first(6), std::out_of_range);
  }
  CHECK(all_of(first) == std::vector<Listed>(kListed.begin(), kListed.begin() + 2));
  CHECK_THROWS_AS(first.at(2), std::out_of_range);
  CHECK(first.first(0).empty());
}

TEST_CASE("a list that is built by folders has their paths and labels") {
  ImageListBuilder builder;
  const auto dogs = builder.add_folder("photos/dog/", 1), cats = builder.add_folder("photos/cat/", 0);
  builder.add(cats, "b/1.png", 3, 4);
  builder.add(dogs, "2.png", 5, 6);
  CHECK(all_of(builder.list()) ==
        std::vector<Listed>{{"photos/cat/b/1.png", 0, 3, 4}, {"photos/dog/2.png", 1, 5, 6}});
}

TEST_CASE("70,000 files of a folder take 3 MB, and copies of the list nothing") {
  constexpr int64_t kListedFiles = 70'000;
  const auto in_use = [] {
    const auto memory = ::mallinfo2();  // zeros under a sanitizer
    return static_cast<int64_t>(memory.uordblks + memory.hblkhd);
  };
  const auto before = in_use();
  ImageListBuilder builder;
  builder.reserve(kListedFiles);
  const auto folder = builder.add_folder("/data/photographs/of/animals/train/cat/", 0);
  for (int64_t i = 0; i < kListedFiles; ++i) builder.add(folder, std::to_string(i) + ".png", i, i);
  const auto list = builder.list();
  const std::vector<ImageList> copies(100, list);
  CHECK(in_use() - before < 3'000'000);
  CHECK(copies.back().at(kListedFiles - 1).path == "/data/photographs/of/animals/train/cat/69999.png");
}

TEST_CASE("a size that is known is not asked for again, and one that is not is the file's") {
  const TempFolder folder;
  const auto path = folder / "1.png";
  write_file(path, "12345");
  const ImageList list = {
      {.path = path, .size = 99}, {.path = path}, {.path = folder / "none.png"}, {.path = "none", .size = 3}};
  CHECK(list.bytes(0) == 99);
  CHECK(list.bytes(1) == 5);
  CHECK(list.bytes(2) == -1);
  CHECK(list.bytes(3) == 3);
}
