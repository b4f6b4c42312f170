// Draws a figure.
#pragma once

#include <lockstep/app/plot/picture/canvas.h>
#include <lockstep/app/plot/picture/figure.h>
#include <lockstep/app/plot/picture/layout.h>

namespace lockstep::plot {

// Draws on paper of its own colour, with a border, so that it can be read on light and dark pages.
void paint(const Figure& figure, const Layout& layout, Canvas& canvas);

// Okabe and Ito's palette, which people with any colour vision can tell apart, without its yellow, which is
// too light. Pale: mixed with the paper's colour.
Color color_of(int color, bool pale);

inline constexpr Color kPaper{.red = .992, .green = .992, .blue = .984};

}  // namespace lockstep::plot
