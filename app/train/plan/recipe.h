// A recipe is a named set of training values. Flags take precedence over it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/models/initialize.h>
#include <lockstep/parallel/optimizer/lr_schedule.h>
#include <lockstep/parallel/optimizer/optimizer_options.h>

namespace lockstep {

struct TrainFlags;

struct Recipe {
  std::string_view name;
  std::string_view what;   // one line
  std::string_view paper;  // results that the chapter reports; may be empty
  std::string_view model;
  Initialization initialization = Initialization::kNormal;  // of the recipe's own model
  int64_t epochs = 10;
  // With `per_device`, k devices use k times this batch and k times this rate. --batch-size does not change
  // the rate, and --lr is used as given.
  int64_t batch_size = 256;
  double lr = .1;          // of SGD
  double adamw_lr = 1e-3;  // of AdamW and Adam
  bool per_device = true;
  double momentum = 0;
  double weight_decay = 0;
  Schedule schedule = Schedule::kConstant;
  int64_t warmup_epochs = 0;
};

// The recipes that have a name for --recipe.
std::span<const Recipe> recipes();
std::vector<std::string> recipe_names();

// The recipe's learning rate for this optimizer, on one device.
double rate_of(const Recipe& recipe, OptimizerKind optimizer);

// For people: "weights N(0, .01), biases 0".
std::string_view initialization_text(Initialization how);

// Throws UsageError that lists the known names.
const Recipe& find_recipe(std::string_view name);

// The values for what these flags train: those of the named recipe, else of an exported program, else of the
// first recipe. Throws as find_recipe() does.
const Recipe& recipe_of(const TrainFlags& flags);

}  // namespace lockstep
