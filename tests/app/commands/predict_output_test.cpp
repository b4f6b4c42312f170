// How predictions are written.
#include <lockstep/tests/catch.h>

#include <nlohmann/json.hpp>
#include <vector>

#include <lockstep/app/commands/predict_output.h>

using namespace lockstep;
using Classes = std::vector<int64_t>;

namespace {

const NetworkFacts kSevenClasses{.input = "images",
                                 .row_shape = {1, 2, 2},
                                 .bytes = true,
                                 .classes = {"ant", "bee", "cat", "dog", "eel", "fox", "g\x1bnu"}};

}  // namespace

TEST_CASE("the five best classes come in order, of equal ones the lower class first") {
  const std::vector<double> shares = {.1, .2, .05, .2, .3, .1, .05};
  const auto answer = answer_of(shares);
  CHECK(answer.classes == Classes{4, 1, 3, 0, 5});
  CHECK(answer.probabilities == std::vector<double>{.3, .2, .2, .1, .1});
  CHECK(answer_of(std::vector<double>{.25, .75}).classes == Classes{1, 0});
}

TEST_CASE("a line has the file, the row of a file of several, and the best classes") {
  const Answer answer{.classes = {2, 0, 6}, .probabilities = {.981, .0124, .0066}};
  CHECK(line_of("a.png", {}, answer, kSevenClasses) == "a.png  cat 98.1%  ant 1.2%, g?nu 0.7%\n");
  CHECK(line_of("rows.safetensors", 3, answer, kSevenClasses) ==
        "rows.safetensors 3  cat 98.1%  ant 1.2%, g?nu 0.7%\n");
}

TEST_CASE("JSON has the file, the row, the class and the best ones") {
  const Answer answer{.classes = {2, 0}, .probabilities = {.75, .25}};
  CHECK(json_of("a.png", {}, answer, kSevenClasses) == Json::parse(R"({"file": "a.png", "row": 0, "class": 2,
      "name": "cat", "probability": 0.75, "best": [{"class": 2, "name": "cat", "probability": 0.75},
      {"class": 0, "name": "ant", "probability": 0.25}]})"));
  CHECK(json_of("r.safetensors", 7, answer, kSevenClasses).at("row") == 7);
}
