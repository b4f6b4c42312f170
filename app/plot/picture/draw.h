// Draws a figure as SVG or PNG.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/app/plot/picture/figure.h>

namespace lockstep::plot {

enum class PictureFormat { kSvg, kPng };

inline constexpr int kPngScale = 2;  // PNG pixels per picture pixel

// Returns the bytes of the picture. Throws FailedError if this build has no cairo or cairo cannot draw it (a
// height of more than 32,767 pixels).
std::string draw(const Figure& figure, PictureFormat format);

// Pixels with three bytes each, red, green and blue, row by row from the top.
struct Raster {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb = {};
};

// Returns the bytes of a PNG with these pixels. Throws FailedError as draw() does.
std::string png_of(const Raster& raster);

}  // namespace lockstep::plot
