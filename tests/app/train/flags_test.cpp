// Flags of `lockstep train` that change the update. The weights of a step or two, in double, are compared
// with the textbook's formula; g is the gradient, from a step of plain SGD.
#include <lockstep/tests/catch.h>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include <lockstep/tests/app/files/saved_weights.h>
#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;
using nlohmann::json;

namespace {

using Values = std::vector<double>;

constexpr double kLr = .2;

// All weights of a run of `steps` steps, in order of name.
Values trained(const SmallData& data, int steps, const Words& words, const std::string& precision = "fp64") {
  const TempFolder folder;
  const auto file = (folder / "w").string();
  auto all = Words{"--data",        data.folder(),         "--limit-train", "128",     "--batch-size", "64",
                   "--limit-steps", std::to_string(steps), "--precision",   precision, "--save",       file,
                   "--quiet"} +
             words;
  if (std::find(words.begin(), words.end(), "--lr") == words.end()) all = all + Words{"--lr", "0.2"};
  const auto result = run_process(train(all));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return values_of(read_weights(file));
}

Values difference(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  Values result(a.size());
  std::transform(a.begin(), a.end(), b.begin(), result.begin(), std::minus<>());
  return result;
}

double norm(const Values& a) { return std::sqrt(std::inner_product(a.begin(), a.end(), a.begin(), 0.0)); }

// The distance of two vectors, relative to the length of the second.
double apart(const Values& a, const Values& b) { return norm(difference(a, b)) / norm(b); }

Values times(double factor, Values a) {
  for (auto& value : a) value *= factor;
  return a;
}

constexpr double kSame = 1e-9;

// A step with a rate of almost 0 leaves the initial weights.
Values initial(const SmallData& data) { return trained(data, 1, {"--lr", "1e-300"}); }

std::vector<double> rates(const SmallData& data, const Words& words) {
  std::vector<double> result;
  Words run = {"--data", data.folder(), "--limit-train", "128", "--batch-size", "32", "--log-every", "1"};
  if (std::ranges::find(words, "--epochs") == words.end()) run = run + Words{"--epochs", "2"};
  for (const auto& event : events_named("step", metrics_of(run + words))) result.push_back(event.at("lr"));
  return result;
}

}  // namespace

TEST_CASE("--lr, --momentum, --nesterov, --weight-decay and --clip-norm are torch's SGD") {
  const SmallData data(128, 10);
  const auto w0 = initial(data), w1 = trained(data, 1, {}), w2 = trained(data, 2, {});
  const auto moved = difference(w0, w1);  // lr g
  REQUIRE(norm(moved) > 0);

  CHECK(apart(difference(w0, trained(data, 1, {"--lr", "0.1"})), times(.5, moved)) < kSame);
  // v = g1; then v = g2 + .9 g1
  CHECK(apart(trained(data, 1, {"--momentum", "0.9"}), w1) < kSame);
  CHECK(apart(difference(w2, trained(data, 2, {"--momentum", "0.9"})), times(.9, moved)) < kSame);
  // g + .9 v
  CHECK(apart(difference(w0, trained(data, 1, {"--momentum", "0.9", "--nesterov"})), times(1.9, moved)) <
        kSame);
  // g + .01 w
  CHECK(apart(difference(w1, trained(data, 1, {"--weight-decay", "0.01"})), times(kLr * .01, w0)) < kSame);

  const double length = norm(moved) / kLr;
  const auto bound = [](double value) { return Words{"--clip-norm", std::to_string(value)}; };
  CHECK(trained(data, 1, bound(2 * length)) == w1);
  const auto clipped = difference(w0, trained(data, 1, bound(length / 2)));
  CHECK(apart(clipped, times(.5, moved)) < 1e-4);  // to_string() rounds the bound
}

TEST_CASE("--optimizer adamw is AdamW: its first step is lr g / (|g| + 1e-8), after the decay") {
  const SmallData data(128, 10);
  const auto w0 = initial(data), w1 = trained(data, 1, {});
  const auto moved = trained(data, 1, {"--optimizer", "adamw", "--lr", "0.001", "--weight-decay", "0.1"});
  Values expected;
  for (size_t i = 0; i < w0.size(); ++i) {
    const double g = (w0[i] - w1[i]) / kLr;
    expected.push_back(w0[i] * (1 - .001 * .1) - .001 * g / (std::abs(g) + 1e-8));
  }
  CHECK(apart(difference(moved, w0), difference(expected, w0)) < 1e-6);
}

TEST_CASE("--optimizer adam is Adam: the decay is added to the gradient, before lr g / (|g| + 1e-8)") {
  const SmallData data(128, 10);
  const auto w0 = initial(data), w1 = trained(data, 1, {});
  const auto moved = trained(data, 1, {"--optimizer", "adam", "--lr", "0.001", "--weight-decay", "0.1"});
  Values expected;
  for (size_t i = 0; i < w0.size(); ++i) {
    const double g = (w0[i] - w1[i]) / kLr + .1 * w0[i];
    expected.push_back(w0[i] - .001 * g / (std::abs(g) + 1e-8));
  }
  CHECK(apart(difference(moved, w0), difference(expected, w0)) < 1e-6);
}

TEST_CASE("--accumulate changes how gradients are computed, not their value") {
  const SmallData data(128, 10);
  const auto whole = trained(data, 2, {});
  const auto parts = trained(data, 2, {"--accumulate", "5"});
  CHECK(apart(parts, whole) < kSame);
  CHECK(parts != whole);  // added in another order
}

TEST_CASE("--precision: fp64 keeps doubles, bf16 computes coarsely, bf16 and fp16 keep floats") {
  const SmallData data(128, 10);
  const auto w0 = initial(data);
  const auto doubles = difference(w0, trained(data, 1, {}));
  const auto after_floats = trained(data, 1, {}, "fp32");
  const auto floats = difference(w0, after_floats);
  const auto coarse = difference(w0, trained(data, 1, {"--kernels", "torch"}, "bf16"));
  // Rounding to 24 and 8 bits, over a few layers. The weights' own rounding is 1e-9 of lr g.
  CHECK(apart(floats, doubles) > 1e-8);
  CHECK(apart(floats, doubles) < 1e-4);
  CHECK(apart(coarse, doubles) > 1e-3);
  CHECK(apart(coarse, doubles) < 1e-1);
  for (const auto* precision : {"bf16", "fp16"}) {
    CHECK(trained(data, 1, {}, precision) == after_floats);  // lockstep's kernels for LeNet stay in fp32
  }

  const TempFolder folder;
  for (const auto& [precision, dtype] : {std::pair("fp64", "F64"), {"bf16", "F32"}, {"fp16", "F32"}}) {
    const auto file = (folder / precision).string();
    const auto events = metrics_of({"--data", data.folder(), "--limit-train", "64", "--epochs", "1",
                                    "--precision", precision, "--save", file});
    const auto step = events_named("step", events).at(0);
    CHECK(step.contains("skipped") == (std::string(precision) == "fp16"));
    CHECK(step.value("loss_scale", 65536.) == 65536);
    for (const auto& [name, tensor] : read_weights(file).tensors) CHECK(tensor.dtype == dtype);
  }
}

TEST_CASE("--schedule and --warmup-epochs set the rate of each step") {
  const SmallData data(128, 10);
  const auto check = [](const Values& found, const Values& expected) {
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      INFO("step " << i + 1);
      CHECK(found[i] == Approx(expected[i]).epsilon(1e-9));
    }
  };
  check(rates(data, {}), {.2, .2, .2, .2, .2, .2, .2, .2});
  check(rates(data, {"--schedule", "step"}), {.2, .2, .2, .2, .02, .02, .002, .002});
  check(rates(data, {"--warmup-epochs", "1"}), {.05, .1, .15, .2, .2, .2, .2, .2});
  // .1 (1 + cos(pi k / 4)), k = 0..3, after the warm-up
  check(rates(data, {"--schedule", "cosine", "--warmup-epochs", "1"}),
        {.05, .1, .15, .2, .2, .1707106781, .1, .0292893219});
  check(rates(data, {"--schedule", "exponential", "--gamma", "0.5"}), {.2, .2, .2, .2, .1, .1, .1, .1});
  // torch.optim.lr_scheduler.OneCycleLR(max_lr=.2, total_steps=8), whatever the recipe's warm-up
  check(rates(data, {"--schedule", "onecycle", "--recipe", "resnet18-warmup", "--model", "lenet", "--lr",
                     "0.2", "--momentum", "0"}),
        {.008, .163855021, .1943883555, .1623491308, .1111968028, .05661219964, .01532831877, 8e-7});
  // With such a rate no loss is .01% below the first one.
  check(rates(data, {"--schedule", "plateau", "--gamma", "0.5", "--plateau-patience", "0", "--lr", "1e-6",
                     "--epochs", "4"}),
        {1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 5e-7, 5e-7, 5e-7, 5e-7, 2.5e-7, 2.5e-7, 2.5e-7,
         2.5e-7});
}

TEST_CASE("an epoch's second line shows the rate of its last step") {
  const SmallData data(128, 10);
  const auto result = run_process(train({"--data", data.folder(), "--limit-train", "128", "--batch-size",
                                         "64", "--epochs", "3", "--warmup-epochs", "2", "--log-every", "1"}));
  CHECK_THAT(result.out, ContainsSubstring("after 2 epochs of warm-up"));
  CHECK_THAT(result.out, ContainsSubstring("\n    lr 0.1 | ") && ContainsSubstring("\n    lr 0.2 | "));
}
