// A curve drawn with characters.
#pragma once

#include <span>
#include <string>

namespace lockstep {

// Draws test accuracy against epoch, like the chapter's plot. accuracy[i] belongs to epoch i + 1; the x axis
// goes from 1 to `total_epochs`, and the newest value is marked. The drawing has `width` columns with its
// labels, and `height` rows (with 9 the labels are evenly spaced) and two more for the x axis. Values that
// are not finite leave a gap. Uses braille dots if `utf8`, else '*'. Every line ends with a newline. Returns
// an empty text if no value is finite.
std::string draw_curve(std::span<const double> accuracy, int total_epochs, int width, int height, bool utf8);

}  // namespace lockstep
