#include <lockstep/tests/catch.h>
#include <string>
#include <vector>

#include <lockstep/data/formats/class_names.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("names of classes are the lines of a file, without blank ones at its end") {
  const TempFolder folder;
  for (const char* text : {"cat\ndog", "cat\ndog\n", "cat\r\ndog\r\n", "cat\ndog\n\n\n",
                           "\xef\xbb\xbf"
                           "cat\r\ndog\r\n"}) {
    write_file(folder / "classes.txt", text);
    CHECK(read_class_names(folder / "classes.txt") == Strings{"cat", "dog"});
  }
  write_file(folder / "classes.txt", "a cat\n\xc3\xa9\n");
  CHECK(read_class_names(folder / "classes.txt") == Strings{"a cat", "\xc3\xa9"});
}

TEST_CASE("a file whose lines are no names of classes is an error with its line") {
  struct Case {
    std::string text;
    const char* words;
  };
  const TempFolder folder;
  for (const auto& [text, words] : std::vector<Case>{{"", "is empty"},
                                                     {"\n\n", "has no names"},
                                                     {"cat\n\ndog\n", "no name in line 2"},
                                                     {"cat\ndog\ncat\n", "'cat' again in line 3"},
                                                     {"cat\ncaf\xe9\n", "caf\\xe9"},
                                                     {std::string(1 << 21, 'x'), "2097152 bytes"}}) {
    write_file(folder / "classes.txt", text);
    INFO(words);
    CHECK_THAT(refusal_of<DataError>([&] { read_class_names(folder / "classes.txt"); }),
               ContainsSubstring((folder / "classes.txt").string()) && ContainsSubstring(words));
  }
}

// The numbers and names of torchvision.datasets.EMNIST.classes_split_dict.
TEST_CASE("EMNIST's splits have the classes of torchvision") {
  struct Case {
    const char* split;
    size_t classes;
    const char *tenth, *last;
  };
  for (const auto& [split, classes, tenth, last] : std::vector<Case>{{"byclass", 62, "A", "z"},
                                                                     {"bymerge", 47, "A", "t"},
                                                                     {"balanced", 47, "A", "t"},
                                                                     {"letters", 27, "j", "z"}}) {
    INFO(split);
    const auto names = emnist_classes(std::string("emnist-") + split);
    REQUIRE(names.size() == classes);
    CHECK(names[10] == tenth);
    CHECK(names.back() == last);
  }
  CHECK(emnist_classes("emnist-letters").front() == "N/A");
  CHECK(emnist_classes("emnist-digits") == numbered_classes(10));
  CHECK(emnist_classes("emnist-mnist") == numbered_classes(10));
  CHECK(emnist_classes("emnist-other").empty());
  CHECK(emnist_classes("").empty());
}

TEST_CASE("a label that is no class is an error with its row") {
  const std::vector<uint8_t> labels = {0, 2, 1};
  CHECK_NOTHROW(check_labels(labels, 3, "file"));
  CHECK(refusal_of<DataError>([&] { check_labels(labels, 2, "file"); }) ==
        "file has label 2 in row 1, labels are 0 to 1");
}

TEST_CASE("classes without images are said") {
  const std::vector<uint8_t> some = {1, 2, 2}, other = {1, 3};
  CHECK(label_notices(some, some, {"N/A", "a", "b"}) ==
        Strings{"labels begin at 1: 'N/A' counts as one of 3 classes and has no image"});
  CHECK(label_notices(some, other, {"0", "1", "2", "3", "4"}) ==
        Strings{"no image is of class '0' and 1 more class",
                "there are images for testing, and none for training, of class '3'"});
  CHECK(label_notices(std::vector<uint8_t>{0, 1}, other, {"0", "1"}).empty());
  CHECK(label_notices(std::vector<uint8_t>{1, 1}, std::vector<uint8_t>{0, 1}, {"cat", "dog"}) ==
        Strings{"all images for training are of one class, 'dog': there is nothing to tell apart",
                "there are images for testing, and none for training, of class 'cat'"});
}
