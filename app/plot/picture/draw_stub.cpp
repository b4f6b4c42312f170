#include <lockstep/app/plot/picture/draw.h>
#include <lockstep/support/error.h>

namespace lockstep::plot {

std::string draw(const Figure&, PictureFormat) {
  throw FailedError("this lockstep was built without cairo: it cannot draw",
                    "apt-get install libcairo2-dev, then build again");
}

std::string png_of(const Raster&) { return draw({}, PictureFormat::kPng); }

}  // namespace lockstep::plot
