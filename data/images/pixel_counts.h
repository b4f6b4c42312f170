// How often each byte is in the channels of images: exact, whatever the order of the images.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

struct Normalization;  // normalize.h

class PixelCounts {
 public:
  explicit PixelCounts(int64_t channels) : channels_(static_cast<size_t>(channels)) {}

  // images: (n, channels, height, width), whose planes have `plane` bytes.
  void add(std::span<const uint8_t> images, int64_t plane) {
    for (size_t begin = 0, at = 0; begin < images.size(); begin += static_cast<size_t>(plane), ++at) {
      auto& channel = channels_[at % channels_.size()];
      for (const auto value : images.subspan(begin, static_cast<size_t>(plane))) ++channel[value];
    }
  }

  void add(const PixelCounts& other) {
    for (size_t channel = 0; channel < channels_.size(); ++channel) {
      for (size_t byte = 0; byte < 256; ++byte) channels_[channel][byte] += other.channels_[channel][byte];
    }
  }

  // By channel and byte.
  const std::vector<std::array<int64_t, 256>>& counts() const { return channels_; }

 private:
  std::vector<std::array<int64_t, 256>> channels_;
};

struct PixelMoments {
  std::vector<double> mean = {}, deviation = {};  // of pixels / 255, for each channel; 0 for one value
};

PixelMoments moments_of(const PixelCounts& counts);

// Returns mean and deviation of each channel, as measure() does (normalize.h).
Normalization normalization_of(const PixelCounts& counts);

}  // namespace lockstep
