// The files of a run's checkpoint.
#include <lockstep/tests/catch.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/app/train/checkpoint/command.h>
#include <lockstep/app/train/checkpoint/contents.h>
#include <lockstep/data/train_checkpoint.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/train/checkpoint/run_state.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using Json = nlohmann::ordered_json;

// A list of so many.
std::string list_of(const std::string& value, size_t count) {
  std::string text = "[" + value;
  while (--count > 0) text += "," + value;
  return text + "]";
}

}  // namespace

TEST_CASE("a run's state is read from its checkpoint as it was") {
  const auto found = read_state(to_checkpoint(state_of(4)));
  const auto expected = state_of(4);
  CHECK(found.trainer.steps == 4);
  CHECK(found.trainer.split == expected.trainer.split);
  CHECK(found.trainer.lr == expected.trainer.lr);
  CHECK(found.trainer.model.at(0).tensor.equal(expected.trainer.model.at(0).tensor));
  CHECK(found.trainer.optimizer.at(1).tensor.equal(torch::tensor(2.f)));
  REQUIRE(found.trainer.replicas.size() == 3);
  for (int rank = 0; rank < 3; ++rank) {
    const auto& replica = found.trainer.replicas[static_cast<size_t>(rank)];
    CHECK(replica.rows_trained == 10 + rank);
    CHECK(replica.buffers.at(0).name == "bn.mean");
    CHECK(replica.buffers.at(0).tensor.equal(torch::full({2}, rank)));
    CHECK(replica.host_generator.equal(torch::full({5}, rank, torch::kUInt8)));
    CHECK(replica.device_generator.numel() == 0);
  }
  CHECK(to_json(found.position) == to_json(expected.position));
  CHECK(found.position.epoch_sums.loss == 1. / 3);
  CHECK(to_json(found.position.left_out) == to_json(expected.position.left_out));
  CHECK(found.plan == expected.plan);
  CHECK(found.environment == expected.environment);
  CHECK(found.file_bytes == expected.file_bytes);
}

TEST_CASE("the weights that were evaluated are the averages, where there are some") {
  auto state = state_of(4).trainer;
  state.model.push_back({"bn.mean", torch::ones({2})});
  CHECK(evaluated_weights(state).at(0).tensor.equal(state.model.at(0).tensor));
  state.average = {{"w", torch::full({3}, .5)}};
  const auto evaluated = evaluated_weights(state);
  REQUIRE(evaluated.size() == 2);
  CHECK(evaluated[0].tensor.equal(torch::full({3}, .5)));
  CHECK(evaluated[1].tensor.equal(torch::ones({2})));
  CHECK(is_finite(state));
  state.average.front().tensor.fill_(NAN);
  CHECK_FALSE(is_finite(state));
}

TEST_CASE("averages that are not of the model's weights are refused") {
  const std::vector<NamedTensor> wrong = {{"module.w", torch::zeros({3})},
                                          {"w", torch::zeros({4})},
                                          {"w", torch::zeros({3, 1})},
                                          {"w", torch::zeros({3}, torch::kFloat64)}};
  for (const auto& average : wrong) {
    auto state = state_of(4).trainer;
    state.average = {average};
    CHECK_THROWS_AS(evaluated_weights(state), WeightsError);
    CHECK_THROWS_WITH(evaluated_weights(state), ContainsSubstring("'" + average.name + "'"));
  }
}

TEST_CASE("files that are not a run's checkpoint are refused") {
  const auto refused = [](const auto& change, const std::string& text) {
    auto checkpoint = to_checkpoint(state_of(1));
    change(checkpoint);
    CHECK_THROWS_WITH(read_state(std::move(checkpoint)), ContainsSubstring(text));
  };
  refused([](auto& c) { c.texts.clear(); }, "it has no state.json");
  refused([](auto& c) { c.texts["state.json"] = "["; }, "state.json is not JSON");
  refused([](auto& c) { c.texts["state.json"] = "{}"; }, "state.json has no plan");
  refused([](auto& c) { c.texts["state.json"] = "{\"plan\": {}}"; }, "steps");
  refused([](auto& c) { c.texts["state.json"] = std::string(80'000, '['); }, "nested more than 64 deep");
  const auto with = [](const std::string& key, const std::string& value) {
    return [key, value](auto& c) {
      auto json = Json::parse(c.texts["state.json"]);
      json[Json::json_pointer(key)] = Json::parse(value);
      c.texts["state.json"] = json.dump();
    };
  };
  refused(with("/progress/step", "-5"), "state.json has step -5 of epoch 2 after 1 in all");
  refused(with("/progress/step", "5"), "step 5 of epoch 2 after 1 in all");
  refused(with("/progress/epoch", "0"), "epoch 0");
  refused(with("/progress/epoch", "4611686018427387904"), "epoch 4611686018427387904");
  refused(with("/file_bytes/metrics.csv", "-1"), "-1 bytes of metrics.csv");
  refused(with("/steps", "-3"), "state.json has -3 steps");
  refused(with("/progress/accuracy", list_of("0", 250'001)), "JSON that is too long");
  refused(with("/environment", list_of("[]", 10'001)), "JSON that is too long");
  refused([](auto& c) { c.tensors.erase("optimizer.safetensors"); }, "it has no optimizer.safetensors");
  for (const std::string name :
       {"0.other", "x.buffers.a", "buffers.a", "99999999.rows_trained", "0rows_trained"}) {
    refused([&](auto& c) { c.tensors["replicas.safetensors"].tensors.at(0).name = name; },
            "a tensor named '" + name + "'");
  }
}

TEST_CASE("a checkpoint of another program that uses the library is whole, but not a run's") {
  const TempFolder folder;
  const auto path = (folder / "own").string();
  write_checkpoint(path, to_checkpoint(state_of(1).trainer));
  CHECK_NOTHROW(run_checkpoint_verify(path));
  CHECK(is_of_program(read_checkpoint(path)));
  CHECK(is_of_program({}));
  CHECK_FALSE(is_of_program(to_checkpoint(state_of(1))));
  CHECK_FALSE(is_of_program({.tensors = {}, .texts = {{"state.json", "[1"}}}));  // damage
  const std::string why = "state.json has no plan, so another program wrote it";
  CHECK_THROWS_WITH(read_state(read_checkpoint(path)), ContainsSubstring(why));
  CHECK_THROWS_WITH(run_checkpoint_export(path, (folder / "w.safetensors").string(), false),
                    ContainsSubstring(why));
  write_file(folder / "own/model.safetensors", "damaged");
  CHECK_THROWS_WITH(run_checkpoint_verify(path), "1 of 1 checkpoint is damaged");
}
