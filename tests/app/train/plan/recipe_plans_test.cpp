// The plans of the recipes on 1, 2 and 3 devices, and how flags change them.
#include <lockstep/tests/catch.h>

#include <cstdint>
#include <sstream>
#include <string>

#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train/recipe_values.h>
#include <lockstep/tests/app/train_command.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string recipe_plan(const SmallData& data, const Words& words) {
  return plan_text(Words{"--data", data.folder()} + words);
}

}  // namespace

TEST_CASE("every recipe has its chapter's values, on 1, 2 and 3 devices", "[cpu][slow]") {
  const SmallData data(1000, 10);
  for (const auto& recipe : kRecipes) {
    for (const int64_t devices : {1, 2, 3}) {
      INFO(recipe.recipe << " on " << devices);
      const auto times = recipe.per_device ? devices : 1;
      const auto text =
          recipe_plan(data, {"--recipe", recipe.recipe, "--devices", "cpux" + std::to_string(devices)});
      CHECK_THAT(text, ContainsSubstring("  model      " + recipe.model + "; " + recipe.starts + "\n"));
      CHECK_THAT(text, ContainsSubstring(" " + std::to_string(recipe.batch * times) + " images per step, "));
      std::ostringstream lr;
      lr << recipe.lr * static_cast<double>(times);
      CHECK_THAT(text, ContainsSubstring(", SGD, lr " + lr.str() + recipe.rest + ", seed 0\n") &&
                           ContainsSubstring("  training   10 epochs ("));
    }
  }
}

TEST_CASE("every recipe has a rate for Adam and AdamW, which grows with the number of devices like SGD's") {
  const SmallData data(64, 10);
  const std::string flag = GENERATE("adam", "adamw"), name = flag == "adam" ? "Adam" : "AdamW";
  for (const auto& recipe : kRecipes) {
    INFO(recipe.recipe << ", " << flag);
    const Words words = {"--recipe",  recipe.recipe, "--optimizer", flag,
                         "--devices", "cpux2",       "--model",     "lenet"};
    CHECK_THAT(recipe_plan(data, words),
               ContainsSubstring(name + (recipe.per_device ? ", lr 0.002" : ", lr 0.001")));
    CHECK_THAT(recipe_plan(data, words + Words{"--lr", ".01"}), ContainsSubstring(name + ", lr 0.01"));
  }
}

TEST_CASE("flags take precedence over a recipe, and a short run has no warm-up") {
  const SmallData data(1000, 10);
  // --batch-size does not change a recipe's rate, and --lr is used as given.
  const Words two = {"--recipe", "resnet18-pytorch", "--devices", "cpux2"};
  CHECK_THAT(recipe_plan(data, two + Words{"--batch-size", "64"}),
             ContainsSubstring(" 64 images per step, 32 per replica") && ContainsSubstring("SGD, lr 0.2, "));
  CHECK_THAT(
      recipe_plan(data, two + Words{"--lr", ".3"}),
      ContainsSubstring(" 512 images per step, 256 per replica") && ContainsSubstring("SGD, lr 0.3, "));
  const Words warmup = {"--recipe", "resnet18-warmup", "--devices", "cpu", "--model", "lenet"};
  CHECK_THAT(recipe_plan(data, warmup + Words{"--schedule", "constant", "--warmup-epochs", "0", "--momentum",
                                              "0", "--weight-decay", "0", "--epochs", "3"}),
             ContainsSubstring("  model      lenet, 129,068 parameters; the model's own initial weights\n") &&
                 ContainsSubstring("  training   3 epochs (12 steps in all), SGD, lr 0.1, seed 0\n"));
  CHECK_THAT(recipe_plan(data, warmup + Words{"--epochs", "1"}),
             ContainsSubstring("lr 0.1 (cosine schedule), momentum 0.9"));
}
