// From a figure to the bytes of a picture.
#pragma once

#include <string>

#include <lockstep/app/plot/figure.h>

namespace lockstep::plot {

enum class PictureFormat { kSvg, kPng };

inline constexpr int kPngScale = 2;  // of the PNG's pixels to the picture's own

// Throws FailedError where this build has no cairo, or cairo cannot draw it (more than 32,767 pixels high).
std::string draw(const Figure& figure, PictureFormat format);

}  // namespace lockstep::plot
