#include <lockstep/app/list_recipes.h>

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include <lockstep/app/files/json_file.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/recipe.h>
#include <lockstep/models/initialize.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

std::string values_of(const Recipe& recipe) {
  const auto* times = recipe.per_device ? " x k" : "";  // on k devices
  auto text =
      fmt::format("{}, {}, batch {}{}, lr {}{} (adamw {}{})", recipe.model, counted(recipe.epochs, "epoch"),
                  recipe.batch_size, times, recipe.lr, times, recipe.adamw_lr, times);
  if (recipe.momentum > 0) text += fmt::format(", momentum {}", recipe.momentum);
  if (recipe.weight_decay > 0) text += fmt::format(", weight decay {}", recipe.weight_decay);
  if (recipe.schedule != Schedule::kConstant) {
    text += fmt::format(", {} schedule", name_of(kScheduleNames, recipe.schedule));
  }
  if (recipe.warmup_epochs > 0)
    text += fmt::format(", {} of warm-up", counted(recipe.warmup_epochs, "epoch"));
  return text + fmt::format("; {}", initialization_text(recipe.initialization));
}

nlohmann::ordered_json recipes_json() {
  auto list = nlohmann::ordered_json::array();
  for (const auto& recipe : recipes()) {
    list.push_back({{"name", recipe.name},
                    {"description", recipe.what},
                    {"reported", recipe.paper},
                    {"model", recipe.model},
                    {"initialization", name_of(kInitializationNames, recipe.initialization)},
                    {"epochs", recipe.epochs},
                    {"batch_size", recipe.batch_size},
                    {"lr", recipe.lr},
                    {"adamw_lr", recipe.adamw_lr},
                    {"per_device", recipe.per_device},
                    {"momentum", recipe.momentum},
                    {"weight_decay", recipe.weight_decay},
                    {"schedule", name_of(kScheduleNames, recipe.schedule)},
                    {"warmup_epochs", recipe.warmup_epochs}});
    if (recipe.paper.empty()) list.back()["reported"] = nullptr;
  }
  return {{"recipes", list}};
}

std::string recipes_text(size_t width) {
  constexpr size_t kBelow = 4;  // the column where the rest of a long line begins
  std::string text;
  for (const auto& recipe : recipes()) {
    text += fmt::format("{}\n  {}\n  {}\n", recipe.name, wrapped(recipe.what, kBelow, width),
                        wrapped(values_of(recipe), kBelow, width));
    if (!recipe.paper.empty()) {
      text += "  " + wrapped(fmt::format("the chapter: {}", recipe.paper), kBelow, width) + "\n";
    }
  }
  const auto* meaning = "k is the number of devices: of a batch of 256 x k images each device gets 256.";
  return text + "\n" + wrapped(meaning, 0, width) + "\n";
}

}  // namespace

void setup_recipes(CLI::App& app) {
  auto* command = app.add_subcommand("recipes", "List the recipes of `train`, with the chapters' figures");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print the list as JSON");
  command->callback([json] {
    const auto width = Terminal(STDOUT_FILENO, ColorMode::kNever).text_width();
    write_stdout(*json ? json_line(recipes_json()) : recipes_text(width));
  });
}

}  // namespace lockstep
