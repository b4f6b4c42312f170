// Counts of classes and answers, held against counting by hand.
#include <lockstep/tests/catch.h>

#include <nlohmann/json.hpp>
#include <vector>

#include <lockstep/app/files/json.h>
#include <lockstep/app/run_files/confusion.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

// In class 0 two of three rows are right; in class 1 none of one; class 2 has no row, and takes one.
Confusion three_classes() {
  Confusion confusion(3, {"cat", "dog"});
  confusion.add(std::vector<int64_t>{0, 0}, std::vector<int64_t>{0, 2});
  confusion.add(std::vector<int64_t>{0, 1}, std::vector<int64_t>{0, 0});
  return confusion;
}

}  // namespace

TEST_CASE("rows are counted by class and answer, with the share of each") {
  const auto confusion = three_classes();
  CHECK(confusion.count(0, 0) == 2);
  CHECK(confusion.count(0, 2) == 1);
  CHECK(confusion.count(1, 0) == 1);
  CHECK(confusion.rows_of(0) == 3);
  CHECK(confusion.answers_of(0) == 3);
  CHECK(confusion.recall(0) == Approx(2. / 3));
  CHECK(confusion.precision(0) == Approx(2. / 3));
  CHECK(confusion.recall(1) == 0);
  CHECK_FALSE(confusion.precision(1).has_value());  // nothing was taken for a dog
  CHECK_FALSE(confusion.recall(2).has_value());
  CHECK(confusion.precision(2) == 0);
}

TEST_CASE("classes without a name have their numbers, and names beyond the classes are left out") {
  CHECK(three_classes().name(2) == "2");
  CHECK(Confusion(1, {"a", "b"}).classes() == 1);
}

TEST_CASE("the JSON of a confusion has null where there is no row") {
  const auto json = to_json(three_classes());
  CHECK(json.at("classes") == Json({"cat", "dog", "2"}));
  CHECK(json.at("counts") == Json::parse("[[2,0,1],[1,0,0],[0,0,0]]"));
  CHECK(json.at("recall").at(1) == 0);
  CHECK(json.at("recall").at(2).is_null());
  CHECK(json.at("precision").at(1).is_null());
}

TEST_CASE("few classes are shown as a matrix, many with what they are taken for") {
  const auto few = confusion_text(three_classes(), "image");
  CHECK_THAT(few, ContainsSubstring("0 cat 2 0 1   66.7%      66.7%       3\n"));
  CHECK_THAT(few, ContainsSubstring("2     0 0 0       -       0.0%       0\n"));
  Confusion many(21);
  many.add(std::vector<int64_t>{4, 4, 4, 4}, std::vector<int64_t>{4, 7, 9, 9});
  const auto text = confusion_text(many, "row");
  CHECK_THAT(text, ContainsSubstring("most often taken for"));
  CHECK_THAT(text, ContainsSubstring("25.0%") && ContainsSubstring("9 (2)\n"));
}

TEST_CASE("a class's name reaches a terminal without control characters") {
  Confusion confusion(1, {"a\x1b[31m"});
  CHECK(confusion_text(confusion, "row").find('\x1b') == std::string::npos);
}
