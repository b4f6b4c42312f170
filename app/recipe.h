// A recipe is a named set of training values; an explicit flag wins over it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

struct Recipe {
  std::string_view name;
  std::string_view model;
  int64_t epochs;
  int64_t batch_size;  // global
  double lr;
};

std::span<const Recipe> recipes();

// Throws UsageError that lists the known names.
const Recipe& find_recipe(std::string_view name);

}  // namespace lockstep
