#include <lockstep/app/recipe.h>

#include <fmt/format.h>

#include <array>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr std::array kRecipes = {
    // The from-scratch chapter: train(num_gpus, batch_size=256, lr=0.2), ten epochs.
    Recipe{.name = "lenet-scratch", .model = "lenet", .epochs = 10, .batch_size = 256, .lr = .2},
};

}  // namespace

std::span<const Recipe> recipes() { return kRecipes; }

const Recipe& find_recipe(std::string_view name) {
  std::string known;
  for (const auto& recipe : kRecipes) {
    if (recipe.name == name) return recipe;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", recipe.name);
  }
  throw UsageError(fmt::format("unknown recipe '{}'", name), fmt::format("known recipes: {}", known));
}

}  // namespace lockstep
