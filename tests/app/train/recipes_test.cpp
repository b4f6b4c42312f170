// The recipes: the text of `lockstep recipes`, and runs. plan/recipe_plans_test.cpp has their plans.
#include <lockstep/tests/catch.h>
#include <nlohmann/json.hpp>
#include <regex>

#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train/recipe_values.h>
#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

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
  const SmallData data(64, 64);  // has all ten classes
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
