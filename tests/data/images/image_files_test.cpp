#include <sys/stat.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <lockstep/data/images/image_files.h>
#include <lockstep/tests/data/images/image_tree.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using Strings = std::vector<std::string>;

ImageFolder found_in(const ImageTree& tree, const FolderOptions& options = {}) {
  return find_image_folder(tree.path(), options);
}

std::set<std::string> names_of(const ImageTree& tree, const ImageList& half) {
  const auto rows = tree.rows(half);
  return {rows.begin(), rows.end()};
}

// 200 images in two classes without a split.
ImageTree& add_images(ImageTree& tree, int from, int to) {
  for (int i = from; i < to; ++i) {
    tree.add((i % 2 == 0 ? "cat/" : "dog/") + std::to_string(i) + ".png");
  }
  return tree;
}

}  // namespace

TEST_CASE("rows are in order of names, and classes in order of theirs") {
  const ImageTree tree = {"train/dog/1.png", "train/cat/3.jpg", "train/cat/2.JPEG",
                          "train/ant/2.PNG", "test/dog/1.png",  "test/cat/1.png"};
  const auto found = found_in(tree);
  CHECK(found.class_names == Strings{"ant", "cat", "dog"});
  CHECK(tree.rows(found.train) ==
        Strings{"train/dog/1.png 2", "train/cat/2.JPEG 1", "train/ant/2.PNG 0", "train/cat/3.jpg 1"});
  CHECK(tree.rows(found.test) == Strings{"test/cat/1.png 1", "test/dog/1.png 2"});
  CHECK(found.notices == Strings{"no image for testing is of 'ant'"});
}

TEST_CASE("images may lie deeper in a class folder, as Tiny ImageNet has them") {
  const ImageTree tree = {"train/n01/images/a.png", "train/n01/images/b/c.png", "val/n01/a.png"};
  CHECK(tree.rows(found_in(tree).train) == Strings{"train/n01/images/a.png 0", "train/n01/images/b/c.png 0"});
  tree.add("train/n01/1/2/3/4/5/x.png");
  CHECK_THAT(refusal_of<DataError>([&] { found_in(tree); }),
             ContainsSubstring("train/n01/1/2/3/4/5") && ContainsSubstring("5 folders deep"));
}

TEST_CASE("halves are found by their usual names") {
  struct Case {
    const char *train, *test;
  };
  for (const auto& [train, test] : std::vector<Case>{{"train", "test"},
                                                     {"Training", "Testing"},
                                                     {"train", "val"},
                                                     {"train", "valid"},
                                                     {"TRAIN", "validation"}}) {
    INFO(train << " " << test);
    const ImageTree tree = {std::string(train) + "/cat/1.png", std::string(train) + "/dog/2.png",
                            std::string(test) + "/cat/1.png", std::string(test) + "/dog/2.png"};
    const auto found = found_in(tree);
    CHECK(tree.rows(found.train) ==
          Strings{std::string(train) + "/cat/1.png 0", std::string(train) + "/dog/2.png 1"});
    CHECK(tree.rows(found.test) ==
          Strings{std::string(test) + "/cat/1.png 0", std::string(test) + "/dog/2.png 1"});
    CHECK(found.notices.empty());
  }
}

TEST_CASE("a val/ is named where test/ is read, and read where test/ has no classes") {
  const ImageTree tree = {"train/cat/1.png", "train/dog/1.png", "test/cat/2.png", "test/dog/2.png",
                          "val/cat/3.png"};
  const auto found = found_in(tree);
  CHECK(tree.rows(found.test) == Strings{"test/cat/2.png 0", "test/dog/2.png 1"});
  REQUIRE(found.notices.size() == 1);
  CHECK_THAT(found.notices[0], ContainsSubstring("not val"));
  const ImageTree imagenet = {"train/cat/1.png", "test/2.png", "val/cat/3.png"};
  CHECK(imagenet.rows(found_in(imagenet).test) == Strings{"val/cat/3.png 0"});
}

TEST_CASE("a class may be called train") {
  const ImageTree tree = {"bus/1.png", "bus/2.png", "bus/3.png", "train/1.png", "train/2.png", "train/3.png"};
  CHECK(found_in(tree, {.test_share = .4}).class_names == Strings{"bus", "train"});
}

TEST_CASE("a share for testing is near its size, and new files move no old one") {
  ImageTree tree;
  const FolderOptions options{.test_share = .2};
  const auto few = found_in(add_images(tree, 0, 400), options);
  CHECK(few.train.size() + few.test.size() == 400);
  CHECK(few.test.size() > 50);  // 80 are expected, with a deviation of 8
  CHECK(few.test.size() < 110);
  const auto before = names_of(tree, few.test), trained = names_of(tree, few.train);
  const auto many = found_in(add_images(tree, 400, 600), options);
  const auto after = names_of(tree, many.test), still = names_of(tree, many.train);
  CHECK(std::ranges::includes(after, before));
  CHECK(std::ranges::includes(still, trained));
  const auto larger = names_of(tree, found_in(tree, {.test_share = .4}).test);
  CHECK(std::ranges::includes(larger, after));
}

TEST_CASE("hidden files are left out, and links are followed") {
  const ImageTree tree = {"train/cat/1.png", "train/cat/.2.png", "train/.git/3.png", "train/cat/.x/4.png",
                          "test/cat/1.png",  ".hidden/5.png",    "elsewhere"};
  std::filesystem::create_symlink("../../elsewhere", tree.path() / "train/cat/link.png");
  std::filesystem::create_directory_symlink("cat", tree.path() / "train/dog");
  const auto found = found_in(tree);
  CHECK(found.class_names == Strings{"cat", "dog"});
  CHECK(tree.rows(found.train) ==
        Strings{"train/cat/1.png 0", "train/dog/1.png 1", "train/cat/link.png 0", "train/dog/link.png 1"});
}

TEST_CASE("what is no image by its name is left out, and said") {
  const ImageTree tree = {"train/cat/1.png", "train/cat/Thumbs.db", "train/cat/2.txt", "train/3.png",
                          "train/dog/1.png", "test/cat/1.png",      "test/dog/1.png"};
  const auto found = found_in(tree);
  CHECK(found.train.size() == 2);
  REQUIRE(found.notices.size() == 2);
  CHECK_THAT(found.notices[0], ContainsSubstring("2 files") && ContainsSubstring("train/cat/2.txt"));
  CHECK_THAT(found.notices[1], ContainsSubstring("1 image") && ContainsSubstring("train/3.png"));
}

TEST_CASE("images beside the halves are left out, and said") {
  ImageTree tree = {"train/cat/1.png", "train/dog/1.png", "test/cat/1.png", "test/dog/1.png",
                    "loose.png",       "other.jpg",       "readme.txt"};
  const auto path = tree.path().string();
  CHECK(found_in(tree).notices ==
        Strings{"2 images left out, which lie in no class folder, such as " + path + "/loose.png"});
  tree.add("test/9.png");
  CHECK(found_in(tree).notices ==
        Strings{"3 images left out, which lie in no class folder, such as " + path + "/loose.png"});
  const ImageTree alone = {"train/cat/1.png", "train/dog/1.png", "loose.gif"};
  CHECK(found_in(alone, {.only_notice = true}).notices.back() ==
        "1 image left out, which lie in no class folder, such as " + alone.path().string() + "/loose.gif");
}

TEST_CASE("a training of one class is told of") {
  const ImageTree tree = {"train/cat/1.png", "test/cat/1.png"};
  CHECK(found_in(tree).notices ==
        Strings{"all images for training are of one class, 'cat': there is nothing to tell apart"});
}

TEST_CASE("classes without images for testing are counted") {
  const ImageTree tree = {"train/ant/1.png", "train/bee/1.png", "train/cat/1.png", "test/cat/1.png"};
  CHECK(found_in(tree).notices == Strings{"no image for testing is of 'ant' and of 1 other class"});
  tree.add("train/dog/1.png");
  CHECK(found_in(tree).notices == Strings{"no image for testing is of 'ant' and of 2 other classes"});
}

TEST_CASE("each file that is no image is an error with its path, or left out where that is asked for") {
  struct Case {
    const char *file, *words;
  };
  for (const auto& [file, words] : std::vector<Case>{{"train/cat/empty.png", "is empty"},
                                                     {"train/cat/x.BMP", "PNG and JPEG are"},
                                                     {"train/cat/nowhere.png", "No such file"},
                                                     {"train/cat/pipe.png", "not a regular file"},
                                                     {"train/cat/caf\xe9.png", "no UTF-8"}}) {
    const std::string name = file;
    const ImageTree tree = {"train/cat/1.png", "train/dog/1.png", "test/cat/1.png", "test/dog/1.png"};
    if (name.find("nowhere") != std::string::npos) {
      std::filesystem::create_symlink("none", tree.path() / name);
    } else if (name.find("pipe") != std::string::npos) {
      std::filesystem::remove(tree.path() / name);
      REQUIRE(::mkfifo((tree.path() / name).c_str(), 0600) == 0);
    } else {
      tree.add(name, name.find("empty") != std::string::npos ? "" : "bytes");
    }
    INFO(words);
    const auto shown = name.find('\xe9') != std::string::npos ? "caf\\xe9.png" : name;
    CHECK_THAT(refusal_of<DataError>([&] { found_in(tree); }),
               ContainsSubstring(shown) && ContainsSubstring(words));
    const auto found = found_in(tree, {.skip_unreadable = true});
    CHECK(found.train.size() == 2);
    CHECK(found.notices.empty());
    REQUIRE(found.unreadable.size() == 1);
    CHECK(found.unreadable[0].starts_with(tree.path().string() + "/train/cat/"));
    CHECK_THAT(found.unreadable[0], ContainsSubstring(shown + " ") && ContainsSubstring(words));
  }
}

TEST_CASE("a class folder that is a link to nowhere is refused, or left out where that is asked for") {
  const ImageTree tree = {"train/cat/1.png", "test/cat/1.png"};
  for (const auto* half : {"train", "test"})
    std::filesystem::create_symlink("none", tree.path() / half / "dog");
  const auto path = (tree.path() / "train/dog").string();
  CHECK(refusal_of<DataError>([&] { found_in(tree); }) ==
        path + " cannot be read: No such file or directory");
  const auto found = found_in(tree, {.skip_unreadable = true});
  CHECK(found.class_names == std::vector<std::string>{"cat"});
  REQUIRE(found.unreadable.size() == 2);
  CHECK(found.unreadable[0] == path + " cannot be read: No such file or directory");
}

TEST_CASE("each folder that makes no data set is an error that names it") {
  struct Case {
    std::vector<std::string> files;
    double share;
    const char *words, *hint;
  };
  for (const auto& [files, share, words, hint] : std::vector<Case>{
           {{"readme.txt"}, 0, "holds no class folders", "CLASS/IMAGE.png"},
           {{"1.png"}, 0, "images such as 1.png, and no class folders", "CLASS/IMAGE.png"},
           {{"cat/1.png"}, 0, "no test set", "test_share"},
           {{"train/cat/1.png"}, 0, "train holds class folders and no test set", "test_share"},
           {{"train/cat/1.png", "train/dog/", "test/cat/1.png"}, 0, "train/dog holds no images", "remove"},
           {{"train/cat/1.png", "test/cat/1.png", "test/dog/1.png"}, 0, "'dog' is only in", "remove"},
           {{"train/Cat/1.png", "train/cat/1.png", "test/cat/1.png"}, 0, "differ by case alone", "merge"},
           {{"train/Cat/1.png", "test/cat/1.png"}, 0, "differ by case alone", "merge"},
           {{"train/\u00c9t\u00e9/1.png", "train/\u00e9t\u00e9/1.png", "test/\u00e9t\u00e9/1.png"},
            0,
            "differ by case alone",
            "merge"},
           {{"train/caf\xe9/1.png", "test/cat/1.png"}, 0, "caf\\xe9 has a name that is no UTF-8", "rename"},
           {{"train/cat/1.png", "test/cat/"}, 0, "1 image for training and 0 images for testing", "add"},
           {{"cat/1.png"}, .0001, "1 image for training and 0 images for testing", "test_share"},
           {{"cat/1.png"}, .9999, "1 image of ", "test_share"},
           {{"train/cat/1.png", "Train/cat/1.png", "test/cat/1.png"}, 0, "holds Train and train", "merge"}}) {
    ImageTree tree;
    for (const auto& file : files) tree.add(file);
    INFO(words);
    CHECK_THAT(
        refusal_and_hint<DataError>([&, share = share] { found_in(tree, {.test_share = share}); }),
        ContainsSubstring(tree.path().string()) && ContainsSubstring(words) && ContainsSubstring(hint));
  }
}

TEST_CASE("a folder that makes no data set can be looked at, with what is wrong as notices") {
  struct Case {
    std::vector<std::string> files;
    const char* words;
    Strings classes;
    size_t train, test;
  };
  for (const auto& [files, words, classes, train, test] : std::vector<Case>{
           {{"cat/1.png"}, "no test set", {"cat"}, 1, 0},
           {{"train/cat/1.png", "train/dog/", "test/cat/1.png"}, "dog holds no images", {"cat", "dog"}, 1, 1},
           {{"train/dog/1.png", "test/cat/1.png", "test/dog/1.png"}, "'cat' is only", {"cat", "dog"}, 1, 2},
           {{"train/Cat/1.png", "test/cat/1.png"}, "differ by case", {"Cat", "cat"}, 1, 1},
           {{"train/cat/1.png", "test/cat/"}, "0 images for testing", {"cat"}, 1, 0}}) {
    ImageTree tree;
    for (const auto& file : files) tree.add(file);
    INFO(words);
    const auto found = found_in(tree, {.only_notice = true});
    CHECK(found.class_names == classes);
    CHECK(found.train.size() == train);
    CHECK(found.test.size() == test);
    CHECK(std::ranges::any_of(found.notices, [&, words = words](const std::string& notice) {
      return notice.find(words) != std::string::npos;
    }));
  }
}

TEST_CASE("a share for testing is from 0 up to 1, and not beside a test set") {
  const ImageTree tree = {"train/cat/1.png", "test/cat/1.png"};
  for (const double share : {-.1, 1., 2.}) {
    CHECK_THAT(refusal_of([&] { found_in(tree, {.test_share = share}); }),
               ContainsSubstring("test_share is"));
  }
  CHECK_THAT(refusal_of([&] { found_in(tree, {.test_share = .1}); }),
             ContainsSubstring((tree.path() / "test").string()));
}

TEST_CASE("the digest is that of names and sizes, not of where the folder is") {
  const auto digest = [](const std::string& name, const std::string& content) {
    ImageTree tree = {"train/cat/1.png", "test/cat/1.png"};
    tree.add("train/cat/" + name, content);
    return found_in(tree).digest;
  };
  const auto one = digest("2.png", "abc");
  CHECK(one.size() == 64);
  // Python: hashlib.sha256(b"15 cat/1.png\0003 cat/2.png\0002 \00014 cat/1.png\0001 \0").hexdigest()
  CHECK(one == "96b2258365a7e197d9f5c5fafd0ae104a74cf516bd0a1a81bba392c2455a9538");
  CHECK(one == digest("2.png", "xyz"));
  CHECK(one != digest("2.png", "abcd"));
  CHECK(one != digest("3.png", "abc"));
}

TEST_CASE("the same content for training and for testing is found") {
  ImageTree tree = {"train/cat/1.png", "train/cat/2.png", "test/cat/1.png", "test/cat/3.png"};
  CHECK(same_in_train_and_test(found_in(tree)).empty());
  tree.add("test/cat/3.png", "train/cat/2.png");
  CHECK_THAT(same_in_train_and_test(found_in(tree)), ContainsSubstring("1 image for testing is") &&
                                                         ContainsSubstring("test/cat/3.png and ") &&
                                                         ContainsSubstring("train/cat/2.png"));
  std::filesystem::remove(tree.path() / "test/cat/1.png");
  std::filesystem::create_symlink("../../train/cat/1.png", tree.path() / "test/cat/1.png");
  const auto notices = found_in(tree).notices;
  REQUIRE(notices.size() == 2);  // the other one is that of one class
  CHECK_THAT(notices[1], ContainsSubstring("1 file for testing leads to one for training"));
}
