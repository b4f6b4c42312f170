#include <lockstep/app/commands/contact_sheet.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr int kSheetGap = 2;  // pixels between images

}  // namespace

ContactSheet::ContactSheet(int64_t classes, int64_t height, int64_t width)
    : height_(static_cast<int>(height)),
      width_(static_cast<int>(width)),
      shown_(static_cast<size_t>(std::min(classes, kMostRows))),
      raster_{.width = kColumns * (width_ + kSheetGap) + kSheetGap,
              .height = static_cast<int>(shown_.size()) * (height_ + kSheetGap) + kSheetGap} {
  raster_.rgb.assign(static_cast<size_t>(raster_.width) * static_cast<size_t>(raster_.height) * 3, 255);
}

bool ContactSheet::wants(int64_t label) const {
  return label >= 0 && label < std::ssize(shown_) && shown_[static_cast<size_t>(label)] < kColumns;
}

bool ContactSheet::is_full() const {
  return std::ranges::all_of(shown_, [](int count) { return count == kColumns; });
}

void ContactSheet::add(int64_t label, std::span<const uint8_t> pixels) {
  if (!wants(label)) return;
  const auto plane = static_cast<size_t>(height_) * static_cast<size_t>(width_);
  const auto channels = pixels.size() / plane;
  const int top = static_cast<int>(label) * (height_ + kSheetGap) + kSheetGap;
  const int left = shown_[static_cast<size_t>(label)]++ * (width_ + kSheetGap) + kSheetGap;
  for (int y = 0; y < height_; ++y) {
    auto to =
        (static_cast<size_t>(top + y) * static_cast<size_t>(raster_.width) + static_cast<size_t>(left)) * 3;
    for (int x = 0; x < width_; ++x) {
      const auto at = static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x);
      for (size_t colour = 0; colour < 3; ++colour) {
        raster_.rgb[to++] = pixels[(channels == 3 ? colour * plane : 0) + at];
      }
    }
  }
}

}  // namespace lockstep
