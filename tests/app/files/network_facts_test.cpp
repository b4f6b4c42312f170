// The facts that are kept of a network's data, and a file of weights that has them.
#include <lockstep/tests/catch.h>

#include <torch/types.h>

#include <nlohmann/json.hpp>

#include <lockstep/app/files/network_facts.h>
#include <lockstep/app/files/weights_file.h>
#include <lockstep/tests/app/train_command.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Json = nlohmann::ordered_json;

namespace {

const NetworkFacts kFacts{
    .input = "images", .row_shape = {1, 2, 2}, .bytes = true, .classes = {"cat", "dog"}};

}  // namespace

TEST_CASE("facts are kept as JSON, and anything else is none") {
  CHECK(to_json(kFacts) ==
        Json::parse(R"({"input":"images","row_shape":[1,2,2],"bytes":true,"classes":["cat","dog"],)"
                    R"("image_size":0,"mean":[],"deviation":[]})"));
  CHECK(read_facts(to_json(kFacts)) == kFacts);
  auto resized = kFacts;
  resized.image_size = 2;
  resized.mean = {.5};
  resized.deviation = {1. / 3};  // no decimal number
  CHECK(read_facts(to_json(resized)) == resized);
  for (const auto* other :
       {"null", "{}", "[]", R"({"input":"a","row_shape":[0],"bytes":true,"classes":["a"]})",
        R"({"input":"a","row_shape":[1],"bytes":true,"classes":[]})",
        R"({"input":7,"row_shape":[1],"bytes":true,"classes":["a"]})",
        R"({"input":"a","row_shape":[1],"bytes":true,"classes":["a"],"image_size":-1})",
        R"({"input":"a","row_shape":[1],"bytes":true,"classes":["a"],"mean":[1],"deviation":[]})",
        R"({"input":"a","row_shape":[1],"bytes":true,"classes":["a"],"mean":[1],"deviation":[0]})",
        R"({"input":"a","row_shape":[1],"bytes":true,"classes":["a"],"mean":[1],"deviation":[null]})",
        R"({"input":"a","row_shape":[3],"bytes":true,"classes":["a"],"mean":[1,1],"deviation":[1,1]})"}) {
    INFO(other);
    CHECK_FALSE(read_facts(Json::parse(other)).has_value());
  }
}

TEST_CASE("facts of earlier versions have images as they are, of bytes divided by 255") {
  const auto facts = read_facts(
      Json::parse(R"({"input":"images","row_shape":[1,2,2],"bytes":true,"classes":["cat","dog"]})"));
  CHECK(facts == kFacts);
}

TEST_CASE("a file of weights says what its network takes, also with names that are no UTF-8") {
  const TempFolder folder;
  const auto path = (folder / "w.safetensors").string();
  save_weights({{"W1", torch::zeros({1})}}, "lenet", path, /*overwrite=*/false, kFacts);
  CHECK(load_weights(path, {}).facts == kFacts);
  save_weights({{"W1", torch::zeros({1})}}, "lenet", path, /*overwrite=*/true);
  CHECK_FALSE(load_weights(path, {}).facts.has_value());
  auto odd = kFacts;
  odd.classes = {"\xff"};
  save_weights({{"W1", torch::zeros({1})}}, "lenet", path, /*overwrite=*/true, odd);
  CHECK(load_weights(path, {}).facts->classes.size() == 1);
}

TEST_CASE("a plan has the shape of a row and the classes") {
  const auto plan = planned({"--data", "synthetic", "--limit-train", "64", "--limit-test", "16"}).plan;
  REQUIRE(plan.facts.has_value());
  CHECK(plan.facts->row_shape == std::vector<int64_t>{1, 28, 28});
  CHECK(plan.facts->classes.size() == 10);
  CHECK(plan.facts->classes.at(3) == "3");
}
