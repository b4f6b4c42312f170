#include <lockstep/app/train/plan/recipe.h>

#include <fmt/format.h>

#include <array>

#include <lockstep/app/train/plan/flags.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr std::array kRecipes = {
    // train(num_gpus, batch_size=256, lr=0.2), ten epochs
    Recipe{.name = "lenet-scratch",
           .what = "the from-scratch chapter: LeNet, plain SGD",
           .paper = "test acc .80-.84 after 10 epochs",
           .model = "lenet",
           .initialization = Initialization::kNormalZeroBias,
           .lr = .2,
           .per_device = false},
    // train(net, num_gpus=1, batch_size=256, lr=0.1) and train(net, num_gpus=2, batch_size=512, lr=0.2)
    Recipe{.name = "resnet18-pytorch",
           .what = "the concise chapter in PyTorch: ResNet-18, plain SGD",
           .paper = "1 GPU .89 at 14.2 s/epoch, 2 GPUs .81 at 9.3 s",
           .model = "resnet18"},
    Recipe{.name = "resnet18-gluon",
           .what = "the concise chapter in MXNet Gluon: ResNet-18, all biases start at 0",
           .paper = "1 GPU .93 at 13.2 s/epoch, 2 GPUs .91 at 6.9 s",
           .model = "resnet18",
           .initialization = Initialization::kNormalZeroBias},
    // Paddle Fleet: batch 256 and lr .05 of each process, Momentum(0.9) with L2Decay(1e-4)
    Recipe{.name = "resnet18-fleet",
           .what = "the Fleet document: ResNet-18, Paddle's initial weights, momentum .9, L2 1e-4",
           .paper = "",
           .model = "resnet18",
           .initialization = Initialization::kPaddle,
           .lr = .05,
           .momentum = .9,
           .weight_decay = 1e-4},
    Recipe{.name = "resnet18-warmup",
           .what = "lockstep's: one epoch of warm-up, then a cosine; more devices lose no accuracy",
           .paper = "",
           .model = "resnet18",
           .initialization = Initialization::kTorch,
           .momentum = .9,
           .weight_decay = 5e-4,
           .schedule = Schedule::kCosine,
           .warmup_epochs = 1},
};

// The values that torch's users begin with. --recipe does not know it: --program brings it.
constexpr Recipe kProgramRecipe{.name = "program",
                                .what = "an exported program, SGD with momentum",
                                .paper = "",
                                .model = "program",
                                .lr = .01,
                                .per_device = false,
                                .momentum = .9};

}  // namespace

std::span<const Recipe> recipes() { return kRecipes; }

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const auto& recipe : kRecipes) names.emplace_back(recipe.name);
  return names;
}

double rate_of(const Recipe& recipe, OptimizerKind optimizer) {
  return optimizer == OptimizerKind::kSgd ? recipe.lr : recipe.adamw_lr;
}

std::string_view initialization_text(Initialization how) {
  switch (how) {
    case Initialization::kNormal:
      return "weights N(0, .01), biases as torch draws them";
    case Initialization::kNormalZeroBias:
      return "weights N(0, .01), biases 0";
    case Initialization::kPaddle:
      return "Paddle's initial weights";
    case Initialization::kTorch:
      return "torch's initial weights";
  }
  return "unknown initial weights";
}

const Recipe& find_recipe(std::string_view name) {
  std::string known;
  for (const auto& recipe : kRecipes) {
    if (recipe.name == name) return recipe;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", recipe.name);
  }
  throw UsageError(fmt::format("unknown recipe '{}'", name), fmt::format("known recipes: {}", known));
}

const Recipe& recipe_of(const TrainFlags& flags) {
  if (flags.recipe) return find_recipe(*flags.recipe);
  return flags.program ? kProgramRecipe : kRecipes.front();
}

}  // namespace lockstep
