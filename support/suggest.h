// Suggestions for unknown words.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The smallest number of insertions, deletions, replacements and swaps of adjacent characters that turns one
// word into the other (Damerau-Levenshtein, no character edited twice).
int edit_distance(std::string_view a, std::string_view b);

// The names that begin with `word`. None for words of less than three characters.
std::vector<std::string> completions(std::string_view word, std::span<const std::string> names);

// The name that was probably meant: the only one that begins with `word`, else the nearest of those in which
// at most a third of the characters differ. Ignores case, leading dashes, and '_' for '-'.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> names);

// The word without leading dashes, in lower case, with '-' for '_'.
std::string normalized(std::string_view word);

}  // namespace lockstep
