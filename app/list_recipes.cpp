#include <lockstep/app/list_recipes.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/recipe.h>
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

}  // namespace

void setup_recipes(CLI::App& app) {
  auto* command =
      app.add_subcommand("recipes", "List what `train --recipe` knows, with the chapters' figures");
  command->callback([] { run_recipes(); });
}

void run_recipes() {
  std::string text;
  for (const auto& recipe : recipes()) {
    text += fmt::format("{}\n  {}\n  {}\n", recipe.name, recipe.what, values_of(recipe));
    if (!recipe.paper.empty()) text += fmt::format("  the chapter: {}\n", recipe.paper);
  }
  write_stdout(text + "\nk is the number of devices: a batch of 256 x k images leaves each device 256.\n");
}

}  // namespace lockstep
