#include <lockstep/app/cli/color_mode.h>

#include <CLI/CLI.hpp>

namespace lockstep {
namespace {

const CLI::App& root_of(const CLI::App& app) {
  const auto* root = &app;
  while (root->get_parent()) root = root->get_parent();
  return *root;
}

}  // namespace

ColorMode color_mode(const CLI::App& app) {
  const auto* option = root_of(app).get_option("--color");
  const auto choice = option->count() > 0 ? option->results().back() : "auto";
  if (choice == "always") return ColorMode::kAlways;
  return choice == "never" ? ColorMode::kNever : ColorMode::kAuto;
}

}  // namespace lockstep
