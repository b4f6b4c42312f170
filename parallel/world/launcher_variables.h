// The variables that one launcher sets, read with checks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/parallel/world/world.h>

namespace lockstep {

// Throws UsageError if the text is no number from low to high. name: says in the message what the text is.
// hint: the error's.
int number_of(const std::string& name, const std::string& text, int low, int high, const std::string& hint);

inline constexpr const char* kAsTheLauncherSets = "leave the launcher's variables as it sets them";

class LauncherVariables {
 public:
  // Keeps a reference to the environment. `launcher`: for messages.
  LauncherVariables(const Environment& environment, std::string launcher);

  const std::string& launcher() const { return launcher_; }

  // Nullopt if it is not set or empty: some launchers set what they do not know to nothing.
  std::optional<std::string> text(const std::string& name) const;

  // False if none of these is set. Throws UsageError if only some are. An empty one counts as set, and is no
  // number: with RANK="" each of several processes would train alone.
  bool all_set(const std::vector<std::string>& names) const;

  // Both throw UsageError with this hint for what is no number from low to high.
  int number(const std::string& name, int low, int high, const char* hint = kAsTheLauncherSets) const;
  std::optional<int> optional_number(const std::string& name, int low, int high,
                                     const char* hint = kAsTheLauncherSets) const;

 private:
  const Environment& environment_;
  const std::string launcher_;
};

}  // namespace lockstep
