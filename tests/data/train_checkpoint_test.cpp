// A Trainer's state goes through the files of a checkpoint unchanged; other files are refused with a reason.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/train_checkpoint.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

TrainState two_replicas() {
  TrainState state;
  state.steps = 7;
  state.split = {.1, 1. / 3};
  state.lr = {.factor = 1. / 3, .best = .1, .bad_losses = 4, .fixed = 1e-300};
  state.model = {{"w", torch::arange(6, torch::kFloat32).view({2, 3})},
                 {"bn.count", torch::tensor(int64_t{9})}};
  state.optimizer = {{"momentum_buffer.w", torch::full({2, 3}, .5)}};
  state.average = {{"w", torch::full({2, 3}, .25)}};
  state.loss_scale = {.scale = 0x1p-15, .good_steps = 4, .updates = 9, .steps = int64_t{1} << 52};
  for (int rank = 0; rank < 2; ++rank) {
    state.replicas.push_back({.buffers = {{"bn.count", torch::tensor(int64_t{rank})}},
                              .rows_trained = 100 + rank,
                              .host_generator = torch::full({3}, rank, torch::kUInt8),
                              .device_generator = torch::empty({0}, torch::kUInt8)});
  }
  return state;
}

// In any order, since files have one of their own.
void check_equal(std::vector<NamedTensor> found, std::vector<NamedTensor> expected) {
  const auto by_name = [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; };
  std::sort(found.begin(), found.end(), by_name);
  std::sort(expected.begin(), expected.end(), by_name);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].name == expected[i].name);
    CHECK(found[i].tensor.scalar_type() == expected[i].tensor.scalar_type());
    CHECK(found[i].tensor.equal(expected[i].tensor));
  }
}

void check_equal(const TrainState& found, const TrainState& expected) {
  CHECK(found.steps == expected.steps);
  CHECK(found.split == expected.split);  // to the last bit
  CHECK(found.lr == expected.lr);        // likewise
  check_equal(found.model, expected.model);
  check_equal(found.optimizer, expected.optimizer);
  check_equal(found.average, expected.average);
  CHECK(found.loss_scale == expected.loss_scale);
  REQUIRE(found.replicas.size() == expected.replicas.size());
  for (size_t rank = 0; rank < found.replicas.size(); ++rank) {
    check_equal(found.replicas[rank].buffers, expected.replicas[rank].buffers);
    CHECK(found.replicas[rank].rows_trained == expected.replicas[rank].rows_trained);
    CHECK(found.replicas[rank].host_generator.equal(expected.replicas[rank].host_generator));
    CHECK(found.replicas[rank].device_generator.equal(expected.replicas[rank].device_generator));
  }
}

}  // namespace

TEST_CASE("a trainer's state goes through a checkpoint's files unchanged") {
  const TempFolder folder;
  write_checkpoint(folder.path() / "step-7", to_checkpoint(two_replicas()));
  check_equal(read_train_state(read_checkpoint(folder.path() / "step-7")), two_replicas());
}

TEST_CASE(
    "a state that nothing was observed in, and a checkpoint of an earlier version, have a new one's lr") {
  auto state = two_replicas();
  state.lr = {};
  auto checkpoint = to_checkpoint(state);
  CHECK(read_train_state(checkpoint).lr == LrState());
  checkpoint.texts[kStateFile] = R"({"steps": 7, "split": []})";
  CHECK(read_train_state(checkpoint).lr == LrState());
}

TEST_CASE("a state without an average has no file of it, and without a loss scale reads none") {
  auto state = two_replicas();
  state.average.clear();
  state.loss_scale.reset();
  const auto checkpoint = to_checkpoint(state);
  CHECK_FALSE(read_train_state(checkpoint).loss_scale);
  CHECK_FALSE(checkpoint.tensors.contains(kAverageFile));
  CHECK(read_train_state(checkpoint).average.empty());
}

TEST_CASE("a loss scale of an earlier version, which counted updates alone, has taken as many steps") {
  auto checkpoint = to_checkpoint(two_replicas());
  checkpoint.texts[kStateFile] =
      R"({"steps": 7, "split": [], "loss_scale": {"scale": 1024, "good_steps": 2, "updates": 5}})";
  CHECK(read_train_state(checkpoint).loss_scale ==
        LossScaleState{.scale = 1024, .good_steps = 2, .updates = 5, .steps = 5});
}

TEST_CASE("what a caller has added to a trainer's checkpoint is left out") {
  auto checkpoint = to_checkpoint(two_replicas());
  checkpoint.texts["notes.txt"] = "mine";
  checkpoint.tensors["mine.safetensors"] = {};
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  checkpoint.texts[kStateFile] =
      R"({"mine": {"steps": 8, "split": 9, "lr": 3},
          "loss_scale": {"scale": 3.0517578125e-05, "good_steps": 4, "updates": 9, "steps": 4503599627370496},
          "split": [0.1, 0.3333333333333333],
          "lr": {"factor": 0.3333333333333333, "best": 0.1, "bad_losses": 4, "fixed": 1e-300}, "deep": )" +
      deep + R"(, "steps": 7, "more": [{"steps": 10}]})";
  check_equal(read_train_state(std::move(checkpoint)), two_replicas());
}

TEST_CASE("a checkpoint that holds no trainer's state is refused") {
  const auto refused = [](const auto& change, const std::string& text) {
    auto checkpoint = to_checkpoint(two_replicas());
    change(checkpoint);
    CHECK_THROWS_AS(read_train_state(checkpoint), WeightsError);
    CHECK_THROWS_WITH(read_train_state(checkpoint), ContainsSubstring(text));
  };
  const auto state_is = [](const std::string& text) {
    return [text](auto& c) { c.texts[kStateFile] = text; };
  };
  const auto replicas_have = [](const std::string& name, const torch::Tensor& tensor) {
    return [=](auto& c) { c.tensors["replicas.safetensors"].tensors.push_back({name, tensor}); };
  };
  refused([](auto& c) { c.texts.clear(); }, "it has no state.json");
  refused([](auto& c) { c.tensors.erase(kModelFile); }, "it has no model.safetensors");
  refused([](auto& c) { c.tensors.erase("optimizer.safetensors"); }, "it has no optimizer.safetensors");
  refused(state_is("["), "state.json");
  refused(state_is("[]"), "state.json");
  refused(state_is(R"({"split": []})"), "steps");
  refused(state_is(R"({"steps": 1})"), "split");
  refused(state_is(R"({"steps": -1, "split": []})"), "-1 steps");
  refused(state_is(R"({"steps": "many", "split": []})"), "state.json");
  refused(state_is(R"({"steps": 1, "split": [[1]]})"), "state.json");
  refused(state_is(R"({"steps": 1, "split": [], "lr": 3})"), "state.json");
  refused(state_is(R"({"steps": 1, "split": [], "lr": {"factor": 1}})"), "best");
  refused(state_is(R"({"steps": 1, "split": )" + std::string(1'000'000, '[')), "state.json");
  refused(replicas_have("w", torch::zeros({1})), "a tensor named 'w'");
  refused(replicas_have("99999999.buffers.w", torch::zeros({1})), "a tensor named '99999999.buffers.w'");
  refused(replicas_have("0.host_generator", torch::zeros({1})), "a tensor named '0.host_generator'");
}

TEST_CASE(
    "a state with a tensor that the format cannot hold is refused by its name, before a file is written") {
  auto state = two_replicas();
  state.model.push_back({"spectrum", torch::zeros({2}, torch::kComplexDouble)});
  CHECK_THROWS_AS(to_checkpoint(state), OutputError);
  CHECK_THROWS_WITH(to_checkpoint(state),
                    ContainsSubstring("tensor 'spectrum': the format has no dtype ComplexDouble"));
  state.model.back().tensor = torch::zeros({2}, torch::kComplexFloat);
  CHECK_NOTHROW(to_checkpoint(state));
}
