// Draws a figure.
#pragma once

#include <lockstep/app/plot/canvas.h>
#include <lockstep/app/plot/figure.h>
#include <lockstep/app/plot/layout.h>

namespace lockstep::plot {

// On paper of its own colour with a border, so that it reads on light and on dark pages.
void paint(const Figure& figure, const Layout& layout, Canvas& canvas);

// Okabe and Ito's palette, which people with any colour vision can tell apart; without its yellow, which is
// too light for paper. Pale: halfway to the paper.
Color color_of(int color, bool pale);

inline constexpr Color kPaper{.red = .992, .green = .992, .blue = .984};

}  // namespace lockstep::plot
