// A picture of the first images of each class.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/app/plot/picture/draw.h>

namespace lockstep {

class ContactSheet {
 public:
  static constexpr int kColumns = 10;          // images of a class
  static constexpr int64_t kMostRows = 100;    // classes
  static constexpr int64_t kMostPixels = 128;  // on a side of an image; larger ones are to be resized

  // Images of one size.
  ContactSheet(int64_t classes, int64_t height, int64_t width);

  // Returns true while the class has a place for another image.
  bool wants(int64_t label) const;

  // Returns true once no class has a place.
  bool is_full() const;

  // pixels: (channels, height, width) with 1 or 3 channels. Does nothing for a class without a place.
  void add(int64_t label, std::span<const uint8_t> pixels);

  const plot::Raster& raster() const { return raster_; }

 private:
  const int height_, width_;
  std::vector<int> shown_;  // images, by class
  plot::Raster raster_;
};

}  // namespace lockstep
