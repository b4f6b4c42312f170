// A line drawn with characters.
#pragma once

#include <span>
#include <string>

namespace lockstep {

// Test accuracy against epoch, as the chapter's plot has it: the x axis goes from 1 to `total_epochs`,
// accuracy[i] stands at epoch i + 1, the newest has a mark, later epochs stay empty. `width` columns (labels
// included) by `height` rows of line (9 give evenly spaced labels), and two rows of axis below. Values that
// are not finite leave a gap. Braille dots where `utf8`, else '*'. Every line ends with a newline; without a
// finite value the result is empty.
std::string draw_curve(std::span<const double> accuracy, int total_epochs, int width, int height, bool utf8);

}  // namespace lockstep
