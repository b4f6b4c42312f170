#include <lockstep/data/images/exif.h>

#include <cstring>
#include <utility>

namespace lockstep {
namespace {

constexpr uint32_t kOrientationTag = 0x0112, kShort = 3;
constexpr size_t kEntryBytes = 12;

// Numbers of a TIFF file; 0 beyond its end.
class Tiff {
 public:
  explicit Tiff(std::span<const uint8_t> bytes) : bytes_(bytes) {
    big_ = bytes.size() >= 2 && bytes[0] == 'M' && bytes[1] == 'M';
    little_ = bytes.size() >= 2 && bytes[0] == 'I' && bytes[1] == 'I';
  }

  bool valid() const { return (big_ || little_) && number(2, 2) == 42; }

  uint32_t number(size_t at, size_t count) const {
    if (at > bytes_.size() || count > bytes_.size() - at) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) value = value << 8 | bytes_[at + (big_ ? i : count - 1 - i)];
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;
  bool big_ = false, little_ = false;
};

// Where the pixel of a row and column that is upright lies in the stored image.
struct PixelPlace {
  int row, column;
};

PixelPlace stored_place(const StoredImage& stored, int orientation, int y, int x) {
  PixelPlace place = exchanges_sides(orientation) ? PixelPlace{x, y} : PixelPlace{y, x};
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  if (from_bottom) place.row = stored.height - 1 - place.row;
  if (from_right) place.column = stored.width - 1 - place.column;
  return place;
}

}  // namespace

int exif_orientation(std::span<const uint8_t> bytes) {
  const Tiff tiff(bytes);
  if (!tiff.valid()) return kUpright;
  const size_t directory = tiff.number(4, 4);
  const size_t entries = tiff.number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (tiff.number(entry, 2) != kOrientationTag || tiff.number(entry + 2, 2) != kShort) continue;
    const auto value = static_cast<int>(tiff.number(entry + 8, 2));
    return value >= 1 && value <= 8 ? value : kUpright;
  }
  return kUpright;
}

StoredImage upright(StoredImage stored, int orientation) {
  if (orientation == kUpright) return stored;
  const bool exchanged = exchanges_sides(orientation);
  auto image = stored_image(stored.channels, exchanged ? stored.width : stored.height,
                            exchanged ? stored.height : stored.width);
  const auto channels = static_cast<size_t>(stored.channels);
  for (int y = 0; y < image.height; ++y) {
    uint8_t* out = image.row(y);
    for (int x = 0; x < image.width; ++x, out += channels) {
      const auto [row, column] = stored_place(stored, orientation, y, x);
      std::memcpy(out, stored.row(row) + static_cast<size_t>(column) * channels, channels);
    }
  }
  return image;
}

}  // namespace lockstep
