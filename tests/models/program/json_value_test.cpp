#include <lockstep/tests/catch.h>

#include <cmath>
#include <string>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/json_value.h>

using namespace lockstep::program;

namespace {

template <class Call>
std::string format_error_of(const Call& call) {
  try {
    call();
  } catch (const FormatError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("JSON keeps the order of keys") {
  const auto json = parse_json(R"({"z": 1, "a": [true, null, "t", -2, 1.5], "m": {}})");
  REQUIRE(json.object().size() == 3);
  CHECK(json.object()[0].first == "z");
  CHECK(json.object()[2].first == "m");
  CHECK(json.at("z").integer() == 1);
  const auto& list = json.at("a").list();
  CHECK(list[0].truth());
  CHECK(list[1].is_null());
  CHECK(list[2].text() == "t");
  CHECK(list[3].integer() == -2);
  CHECK(list[4].number() == 1.5);
  CHECK(json.find("absent") == nullptr);
}

TEST_CASE("JSON's numbers beyond its own are texts") {
  CHECK(parse_json(R"("Infinity")").number() == INFINITY);
  CHECK(parse_json(R"("-Infinity")").number() == -INFINITY);
  CHECK(std::isnan(parse_json(R"("NaN")").number()));
  CHECK(parse_json("3").number() == 3);
  CHECK(parse_json("-9223372036854775808").integer() == INT64_MIN);
}

TEST_CASE("JSON that is wrong is refused") {
  struct Case {
    std::string text, words;
  };
  const Case cases[] = {
      {"", "is no JSON at byte"},
      {"{\"a\": 1", "is no JSON at byte"},
      {"[1] 2", "is no JSON at byte"},
      {"NaN", "is no JSON at byte"},
      {R"({"a": 1, "b": 2, "a": 3})", "has the key 'a' twice"},
      {"9223372036854775808", "has the number 9223372036854775808, which needs more than 64 bits"},
      {std::string(101, '['), "has more than 100 levels"},
      {std::string(1'000'000, '['), "has more than 100 levels"},
  };
  for (const auto& [text, words] : cases) {
    INFO(words);
    CHECK_THAT(format_error_of([&] { parse_json(text); }), Catch::Matchers::ContainsSubstring(words));
  }
}

TEST_CASE("JSON of another type than expected is refused with both") {
  const auto json = parse_json(R"({"a": 1, "b": "text", "c": [1], "d": null, "e": 0.5, "f": true})");
  struct Case {
    std::string key, words;
    void (*use)(const Json&);
  };
  const Case cases[] = {
      {"a", "has the number 1 where a text is expected", [](const Json& value) { (void)value.text(); }},
      {"b", "has the text 'text' where an integer is expected",
       [](const Json& value) { (void)value.integer(); }},
      {"b", "has the text 'text' where a number is expected",
       [](const Json& value) { (void)value.number(); }},
      {"c", "has a list where an object is expected", [](const Json& value) { (void)value.object(); }},
      {"d", "has null where a list is expected", [](const Json& value) { (void)value.list(); }},
      {"e", "has the number 0.5 where an integer is expected",
       [](const Json& value) { (void)value.integer(); }},
      {"a", "has the number 1 where true or false is expected",
       [](const Json& value) { (void)value.truth(); }},
      {"f", "has true where an integer is expected", [](const Json& value) { (void)value.integer(); }},
  };
  for (const auto& row : cases) {
    INFO(row.words);
    CHECK(format_error_of([&] { row.use(json.at(row.key)); }) == row.words);
  }
  CHECK(format_error_of([&] { (void)json.at("absent"); }) == "has no 'absent'");
  CHECK(format_error_of([&] { (void)json.only(); }) == "has an object of 6 keys where one is expected");
}
