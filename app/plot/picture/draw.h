// Draws a figure as SVG or PNG.
#pragma once

#include <string>

#include <lockstep/app/plot/picture/figure.h>

namespace lockstep::plot {

enum class PictureFormat { kSvg, kPng };

inline constexpr int kPngScale = 2;  // PNG pixels per picture pixel

// Returns the bytes of the picture. Throws FailedError if this build has no cairo or cairo cannot draw it (a
// height of more than 32,767 pixels).
std::string draw(const Figure& figure, PictureFormat format);

}  // namespace lockstep::plot
