// Weights that a run starts from, parameters that it leaves as they are, and weights of classes.
#include <lockstep/tests/catch.h>

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include <lockstep/app/files/weights_file.h>
#include <lockstep/app/train/plan/labels.h>
#include <lockstep/app/train/plan/start.h>
#include <lockstep/data/known_data.h>
#include <lockstep/models/factory.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/train_command.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

std::vector<NamedTensor> copies_of(torch::nn::Module& module) {
  std::vector<NamedTensor> copies;
  for (const auto& item : module.named_parameters())
    copies.push_back({item.key(), item.value().detach().clone()});
  return copies;
}

Model lenet_of(uint64_t seed) { return make_model_factory({.name = "lenet", .seed = seed})(); }

// A file of these tensors, of a network that Python may have written.
std::string file_of(const TempFolder& folder, std::vector<NamedTensor> tensors) {
  const auto path = (folder / "w.safetensors").string();
  save_weights(std::move(tensors), "lenet", path, /*overwrite=*/true);
  return path;
}

TrainingData labelled(const std::vector<int64_t>& labels) {
  const auto rows = static_cast<int64_t>(labels.size());
  const ImageSet set{.images = torch::zeros({rows, 1, 28, 28}, torch::kUInt8),
                     .labels = torch::tensor(labels).to(torch::kUInt8)};
  return as_training_data(Dataset{.name = "mine", .train = set, .test = set, .classes = 3});
}

}  // namespace

TEST_CASE("a start takes what fits, and lists the rest by name") {
  const TempFolder folder;
  const auto source = lenet_of(1);
  auto tensors = copies_of(*source.module);
  tensors[6].tensor = torch::zeros({128, 7});  // W4, of seven classes
  tensors.pop_back();                          // b4
  tensors.push_back({"head.bias", torch::zeros({3})});
  const auto model = lenet_of(2);
  const auto start = read_start(file_of(folder, tensors), *model.module);
  CHECK(start.tensors.size() == 6);
  CHECK(start.other_shape == std::vector<std::string>{"W4 [128, 10], in the file [128, 7]"});
  CHECK(start.missing == std::vector<std::string>{"b4"});
  CHECK(start.unused == std::vector<std::string>{"head.bias"});
  const auto text = start_text(start);
  for (const auto* part :
       {"6 of 8 tensors", "W4 [128, 10]", "not in the file: b4", "only in the file: head.bias"}) {
    CHECK_THAT(text, ContainsSubstring(part));
  }
  const auto started = with_start([] { return lenet_of(2); }, start.tensors, {})();
  const auto own = started.module->named_parameters(), before = model.module->named_parameters();
  for (const auto& [name, tensor] : start.tensors) CHECK(own[name].equal(tensor));
  CHECK(own["W4"].equal(before["W4"]));
}

TEST_CASE("weights that have learnt from pixels of another range are told of, with both ranges") {
  const TempFolder folder;
  const auto source = lenet_of(1);
  const auto path = (folder / "w.safetensors").string();
  NetworkFacts facts{.input = "images", .row_shape = {1, 28, 28}, .bytes = true, .classes = {"a", "b"}};
  facts.mean = {.25};
  facts.deviation = {.5};
  save_weights(copies_of(*source.module), "lenet", path, /*overwrite=*/true, facts);
  const auto start = read_start(path, *lenet_of(2).module);
  CHECK_FALSE(pixels_notice(start, facts));
  auto other = facts;
  other.mean = other.deviation = {};
  const auto notice = pixels_notice(start, other);
  REQUIRE(notice);
  CHECK_THAT(*notice, ContainsSubstring("--normalize 0.25:0.5, this run has none"));
  const auto of_python = read_start(file_of(folder, copies_of(*source.module)), *lenet_of(2).module);
  CHECK_FALSE(pixels_notice(of_python, other));
}

TEST_CASE("a file of which nothing fits is refused with names of both sides") {
  const TempFolder folder;
  const auto file = file_of(folder, {{"module.W1", torch::zeros({20, 1, 3, 3})}});
  const auto model = lenet_of(0);
  const auto refusal = refusal_of<WeightsError>([&] { read_start(file, *model.module); });
  CHECK_THAT(refusal, ContainsSubstring("module.W1") && ContainsSubstring("the model W1"));
}

TEST_CASE("patterns name the parameters that are frozen") {
  const auto model = lenet_of(0);
  using Names = std::vector<std::string>;
  CHECK(frozen_names("W1", *model.module) == Names{"W1"});
  CHECK(frozen_names("b?", *model.module) == Names{"b1", "b2", "b3", "b4"});
  CHECK(frozen_names("?1,[Wb]2", *model.module) == Names{"W1", "b1", "W2", "b2"});
  CHECK_THAT(refusal_and_hint([&] { frozen_names("W1,conv*", *model.module); }),
             ContainsSubstring("'conv*'") && ContainsSubstring("no parameter"));
  CHECK_THAT(refusal_and_hint([&] { frozen_names("", *model.module); }), ContainsSubstring("no parameter"));
  CHECK_THAT(refusal_and_hint([&] { frozen_names("W*,b*", *model.module); }),
             ContainsSubstring("leaves no parameter to train"));
  const auto frozen = with_start([] { return lenet_of(0); }, {}, {"W1", "b4"})();
  for (const auto& item : frozen.module->named_parameters()) {
    CHECK(item.value().requires_grad() == (item.key() != "W1" && item.key() != "b4"));
  }
}

TEST_CASE("a plan says what it starts from and what is frozen") {
  const TempFolder folder;
  const auto file = file_of(folder, copies_of(*lenet_of(5).module));
  const Words small{"--data",          "synthetic", "--limit-train",     "64", "--limit-test", "16",
                    "--model",         "lenet",     "--init-from",       file, "--freeze",     "W1,b1",
                    "--class-weights", "balanced",  "--label-smoothing", ".1"};
  const auto plan = planned(small).plan;
  CHECK(plan.frozen == std::vector<std::string>{"W1", "b1"});
  REQUIRE(plan.start.has_value());
  CHECK(plan.class_weights.size() == 10);
  const auto text = describe(plan);
  CHECK_THAT(text, ContainsSubstring("8 of 8 tensors from") && ContainsSubstring("frozen     W1, b1") &&
                       ContainsSubstring("label smoothing 0.1") && ContainsSubstring("classes weighted"));
}

TEST_CASE("balanced weights let all classes of the training rows weigh alike") {
  // scikit-learn's compute_class_weight("balanced") of the same labels.
  CHECK(balanced_weights(labelled({0, 0, 0, 1, 2, 2})) ==
        std::vector<double>{6. / (3 * 3), 6. / (3 * 1), 6. / (3 * 2)});
  CHECK(class_labels(labelled({2, 0, 1}).train) == std::vector<int64_t>{2, 0, 1});
  CHECK_THAT(refusal_of<DataError>([] {
               balanced_weights(labelled({0, 2, 2}));
             }),
             ContainsSubstring("class 1 of mine has no training image"));
}
