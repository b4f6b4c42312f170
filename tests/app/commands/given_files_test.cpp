// The files that words of `lockstep predict` name.
#include <lockstep/tests/catch.h>

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/app/commands/given_files.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/data/images/image_tree.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

std::vector<std::string> below(const ImageTree& tree, const std::vector<std::string>& files) {
  std::vector<std::string> names;
  for (const auto& file : files) {
    names.push_back(std::filesystem::path(file).lexically_relative(tree.path()).string());
  }
  return names;
}

}  // namespace

TEST_CASE("a folder stands for its images and those below it, in order of names") {
  const ImageTree tree = {"b.png",      "a/2.JPG",    "a/10.png",  "a/.hidden.png",
                          ".git/x.png", "c/d/e.jpeg", "notes.txt", "rows.safetensors"};
  std::filesystem::create_symlink("b.png", tree.path() / "z.png");
  const auto found = files_of({tree.path().string()});
  CHECK(below(tree, found.files) ==
        std::vector<std::string>{"a/10.png", "a/2.JPG", "b.png", "c/d/e.jpeg", "z.png"});
  CHECK(found.others == 2);
  CHECK(found.unreadable.empty());
}

TEST_CASE("words that are no folders stay as they are, in their order") {
  const ImageTree tree = {"a/1.png"};
  const auto folder = (tree.path() / "a").string();
  const auto found = files_of({"z.safetensors", folder, "not there.png"});
  REQUIRE(found.files.size() == 3);
  CHECK(found.files[0] == "z.safetensors");
  CHECK(found.files[1] == folder + "/1.png");
  CHECK(found.files[2] == "not there.png");
}

TEST_CASE("images of a folder that are not read are named, each with its path") {
  const ImageTree tree = {"1.png", "2.gif"};
  std::filesystem::create_symlink("none", tree.path() / "3.png");
  const auto found = files_of({tree.path().string()});
  CHECK(found.files.size() == 1);
  REQUIRE(found.unreadable.size() == 2);
  CHECK(found.unreadable[0].path == (tree.path() / "2.gif").string());
  CHECK(found.unreadable[0].fault.starts_with(found.unreadable[0].path + " is an image of a format"));
  CHECK_THAT(found.unreadable[1].fault, ContainsSubstring("3.png cannot be read: No such file"));
}

TEST_CASE("links that lead in a circle are left out, others are followed") {
  const ImageTree tree = {"a/1.png", "b/2.png"};
  std::filesystem::create_directory_symlink("..", tree.path() / "a/up");
  std::filesystem::create_directory_symlink("../b", tree.path() / "a/over");
  std::filesystem::create_directory_symlink("../a", tree.path() / "b/back");
  const auto found = files_of({tree.path().string()});
  CHECK(below(tree, found.files) ==
        std::vector<std::string>{"a/1.png", "a/over/2.png", "b/2.png", "b/back/1.png"});
  CHECK(below(tree, found.circles) ==
        std::vector<std::string>{"a/over/back", "a/up", "b/back/over", "b/back/up"});
}

TEST_CASE("folders without images, and those that are too deep, are refused by name") {
  const ImageTree tree = {"empty/readme.txt", "deep/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/x.png"};
  CHECK_THAT(refusal_of<DataError>([&] { files_of({(tree.path() / "empty").string()}); }),
             ContainsSubstring("empty") && ContainsSubstring("no images"));
  CHECK_THAT(refusal_of<DataError>([&] { files_of({(tree.path() / "deep").string()}); }),
             ContainsSubstring("deep/1/2") && ContainsSubstring("16 folders deep"));
}
