// The recipes' values, which are those of the chapters: train(net, num_gpus, batch_size, lr), ten epochs
// each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::testing {

struct RecipeValues {
  std::string recipe;
  std::string model;   // with its number of parameters
  std::string starts;  // the initial weights
  int64_t batch;       // on one device
  double lr;           // on one device
  bool per_device;     // k devices use k times both
  std::string rest;    // of the plan's line on training, after the rate
};

inline const std::vector<RecipeValues> kRecipes = {
    {"lenet-scratch", "lenet, 129,068 parameters", "weights N(0, .01), biases 0", 256, .2, false, ""},
    {"resnet18-pytorch", "resnet18, 11,175,818 parameters", "weights N(0, .01), biases as torch draws them",
     256, .1, true, ""},
    {"resnet18-gluon", "resnet18, 11,175,818 parameters", "weights N(0, .01), biases 0", 256, .1, true, ""},
    {"resnet18-fleet", "resnet18, 11,175,818 parameters", "Paddle's initial weights", 256, .05, true,
     ", momentum 0.9, weight decay 0.0001"},
    {"resnet18-warmup", "resnet18, 11,175,818 parameters", "torch's initial weights", 256, .1, true,
     " (cosine schedule) after 1 epoch of warm-up, momentum 0.9, weight decay 0.0005"},
};

}  // namespace lockstep::testing
