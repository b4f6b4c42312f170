// The nearest known name to a word that is not known.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Fewest single-character insertions, deletions, replacements and swaps of neighbours that turn one into the
// other (Damerau-Levenshtein, no character edited twice).
int edit_distance(std::string_view a, std::string_view b);

// The name that was probably meant: at most a third of its characters differ, or it is the only one that
// begins with `word`. Case, leading dashes and '_' for '-' do not count. Nothing when nothing is near.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> names);

// The word in quotes, for a message: control characters become '?', so that it cannot disturb a terminal.
std::string in_quotes(std::string_view word);

}  // namespace lockstep
