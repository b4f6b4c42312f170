// The recipes: the text of `lockstep recipes`, and the plans on 1, 2 and 3 devices. The values are those of
// the chapters: train(net, num_gpus, batch_size, lr), ten epochs each.
#include <lockstep/tests/catch.h>
#include <nlohmann/json.hpp>
#include <regex>

#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

struct RecipeValues {
  std::string recipe;
  std::string model;   // with its number of parameters
  std::string starts;  // the initial weights
  int64_t batch;       // on one device
  double lr;           // on one device
  bool per_device;     // k devices use k times both
  std::string rest;    // of the plan's line on training, after the rate
};

const std::vector<RecipeValues> kRecipes = {
    {"lenet-scratch", "lenet, 129,068 parameters", "weights N(0, .01), biases 0", 256, .2, false, ""},
    {"resnet18-pytorch", "resnet18, 11,175,818 parameters", "weights N(0, .01), biases as torch draws them",
     256, .1, true, ""},
    {"resnet18-gluon", "resnet18, 11,175,818 parameters", "weights N(0, .01), biases 0", 256, .1, true, ""},
    {"resnet18-fleet", "resnet18, 11,175,818 parameters", "Paddle's initial weights", 256, .05, true,
     ", momentum 0.9, weight decay 0.0001"},
    {"resnet18-warmup", "resnet18, 11,175,818 parameters", "torch's initial weights", 256, .1, true,
     " (cosine schedule) after 1 epoch of warm-up, momentum 0.9, weight decay 0.0005"},
};

// The plan of a dry run, without the flags of small runs.
std::string plan(const SmallData& data, const Words& words) {
  const auto result = run_process(program(Words{"train", "--dry-run", "--data", data.folder()} + words));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return result.out;
}

}  // namespace

TEST_CASE("every recipe has its chapter's values, on 1, 2 and 3 devices") {
  const auto recipe = GENERATE(from_range(kRecipes));
  const SmallData data(1000, 10);
  for (const int64_t devices : {1, 2, 3}) {
    INFO(recipe.recipe << " on " << devices);
    const auto times = recipe.per_device ? devices : 1;
    const auto text = plan(data, {"--recipe", recipe.recipe, "--devices", "cpux" + std::to_string(devices)});
    CHECK_THAT(text, ContainsSubstring("  model      " + recipe.model + "; " + recipe.starts + "\n"));
    CHECK_THAT(text, ContainsSubstring(" " + std::to_string(recipe.batch * times) + " images per step, "));
    std::ostringstream lr;
    lr << recipe.lr * static_cast<double>(times);
    CHECK_THAT(text, ContainsSubstring(", SGD, lr " + lr.str() + recipe.rest + ", seed 0\n") &&
                         ContainsSubstring("  training   10 epochs ("));
  }
}

TEST_CASE("--batch-size does not change a recipe's rate, and --lr is used as given") {
  const SmallData data(1000, 10);
  const Words words = {"--recipe", "resnet18-pytorch", "--devices", "cpux2"};
  CHECK_THAT(plan(data, words + Words{"--batch-size", "64"}),
             ContainsSubstring(" 64 images per step, 32 per replica") && ContainsSubstring("SGD, lr 0.2, "));
  CHECK_THAT(
      plan(data, words + Words{"--lr", ".3"}),
      ContainsSubstring(" 512 images per step, 256 per replica") && ContainsSubstring("SGD, lr 0.3, "));
}

TEST_CASE("every recipe has a rate for AdamW, which grows with the number of devices like SGD's") {
  const auto recipe = GENERATE(from_range(kRecipes));
  const SmallData data(64, 10);
  const Words words = {"--recipe",  recipe.recipe, "--optimizer", "adamw",
                       "--devices", "cpux2",       "--model",     "lenet"};
  CHECK_THAT(plan(data, words), ContainsSubstring(recipe.per_device ? "AdamW, lr 0.002" : "AdamW, lr 0.001"));
  CHECK_THAT(plan(data, words + Words{"--lr", ".01"}), ContainsSubstring("AdamW, lr 0.01"));
}

TEST_CASE("flags take precedence over a recipe, and a short run has no warm-up") {
  const SmallData data(1000, 10);
  CHECK_THAT(plan(data, {"--recipe", "resnet18-warmup", "--model", "lenet", "--schedule", "constant",
                         "--warmup-epochs", "0", "--momentum", "0", "--weight-decay", "0", "--epochs", "3"}),
             ContainsSubstring("  model      lenet, 129,068 parameters; the model's own initial weights\n") &&
                 ContainsSubstring("  training   3 epochs (12 steps in all), SGD, lr 0.1, seed 0\n"));
  CHECK_THAT(plan(data, {"--recipe", "resnet18-warmup", "--model", "lenet", "--epochs", "1"}),
             ContainsSubstring("lr 0.1 (cosine schedule), momentum 0.9"));
}

TEST_CASE("two recipes with the same values give the same weights") {
  const SmallData data;
  CHECK(weights_hash({"--data", data.folder(), "--recipe", "resnet18-fleet", "--model", "lenet", "--lr", ".2",
                      "--momentum", "0", "--weight-decay", "0"}) == weights_hash({"--data", data.folder()}));
}

TEST_CASE("with the Fleet recipe every 50th step has a line with its loss and accuracy") {
  const SmallData data;
  const auto result = run_process(train({"--data", data.folder(), "--recipe", "resnet18-fleet", "--model",
                                         "lenet", "--batch-size", "6", "--epochs", "1"}));
  REQUIRE(result.exit_code == 0);
  const std::regex step(
      R"(epoch 1/1 \| step +(\d+)/107 \| loss \d\.\d{4} \| top1 +\d+\.\d% top5 +\d+\.\d% \| [\d,]+ img/s)");
  Words steps;
  for (const auto& line : lines(result.out)) {
    std::smatch match;
    if (std::regex_match(line, match, step)) steps.push_back(match[1]);
  }
  CHECK(steps == Words{"50", "100", "107"});
}

TEST_CASE("--metrics has the plan's values too") {
  const SmallData data(8, 8);
  const auto events = metrics_of({"--data", data.folder(), "--recipe", "resnet18-fleet", "--devices", "cpux2",
                                  "--limit-train", "2", "--batch-size", "2", "--limit-steps", "1"});
  const auto& plan = events.at(0);
  const json expected = {{"event", "plan"},
                         {"recipe", "resnet18-fleet"},
                         {"model", "resnet18"},
                         {"parameters", 11175818},
                         {"initialization", "paddle"},
                         {"devices", {"cpu", "cpu"}},
                         {"batch_size", 2},
                         {"split", {1, 1}},
                         {"epochs", 10},
                         {"optimizer", "sgd"},
                         {"lr", .1},
                         {"momentum", .9},
                         {"weight_decay", 1e-4},
                         {"schedule", "constant"},
                         {"warmup_epochs", 0},
                         {"total_steps", 1}};
  for (const auto& [key, value] : expected.items()) {
    INFO(key);
    CHECK(plan.at(key) == value);
  }
  REQUIRE(events_named("step", events).size() == 1);
  CHECK(events_named("step", events)[0].at("top5") <= 1);
}

TEST_CASE("recipes lists every recipe with its values and the chapter's figures") {
  const auto result = run_process(program({"recipes"}));
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  for (const auto& recipe : kRecipes) {
    CHECK_THAT(result.out,
               ContainsSubstring(recipe.recipe + "\n") && ContainsSubstring("; " + recipe.starts + "\n"));
  }
  CHECK_THAT(result.out,
             ContainsSubstring("lenet, 10 epochs, batch 256, lr 0.2 (adamw 0.001);") &&
                 ContainsSubstring("resnet18, 10 epochs, batch 256 x k, lr 0.1 x k (adamw 0.001 x k);") &&
                 ContainsSubstring(
                     "resnet18, 10 epochs, batch 256 x k, lr 0.05 x k (adamw 0.001 x k), momentum 0.9, "));
  CHECK_THAT(result.out, ContainsSubstring("test acc .80-.84 after 10 epochs") &&
                             ContainsSubstring("1 GPU .89 at 14.2 s/epoch, 2 GPUs .81 at 9.3 s") &&
                             ContainsSubstring("1 GPU .93 at 13.2 s/epoch, 2 GPUs .91 at 6.9 s"));
  CHECK(widest_line(result.out) > 80);  // a pipe gets whole lines, a terminal those that it can show

  auto process = program({"recipes"});
  process.on_terminal = true;
  process.environment = {{"TERM", "xterm"}};
  const auto shown = run_process(process).out;
  CHECK(widest_line(shown) <= 80);
  CHECK(with_single_blanks(shown) == with_single_blanks(result.out));
}
