// Bilinear resizing with antialias, in fixed point, as Pillow's Image.resize() does it: a pass along the
// rows, then one along the columns, each rounded to bytes. Each output pixel is the mean of the input pixels
// below a triangle, whose half width is a pixel of the larger of the two images. The weights have 22 bits
// behind the point: with 8 of the pixel and one more for the sum a 32-bit integer holds the result. Only what
// the central square needs is computed.
#include <lockstep/data/images/resize.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr int kFraction = 22;
constexpr int32_t kHalf = 1 << (kFraction - 1);

// The weights of the input pixels, from `begin` on, for one output pixel.
struct Window {
  int begin, count;
  size_t weights;  // place of the first one
};

// The windows of output pixels `first` to first + count - 1.
struct Filter {
  std::vector<Window> windows = {};
  std::vector<int32_t> weights = {};
};

// As Pillow rounds.
int rounded(double number) { return static_cast<int>(std::floor(number + .5)); }

Filter make_filter(int input, int64_t output, int64_t first, int count) {
  const double scale = static_cast<double>(input) / static_cast<double>(output);
  const double half_width = std::max(scale, 1.0);
  Filter filter;
  std::vector<double> shares;
  for (int i = 0; i < count; ++i) {
    const double center = (static_cast<double>(first + i) + .5) * scale;
    const int begin = std::max(rounded(center - half_width), 0);
    const int end = std::min(rounded(center + half_width), input);
    shares.clear();
    double sum = 0;
    for (int k = begin; k < end; ++k) {
      shares.push_back(std::max(1 - std::abs((k - center + .5) * (1 / half_width)), 0.0));
      sum += shares.back();
    }
    filter.windows.push_back({begin, end - begin, filter.weights.size()});
    for (const double share : shares) {
      filter.weights.push_back(rounded(share / sum * (1 << kFraction)));
    }
  }
  return filter;
}

uint8_t to_byte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kFraction, 0, 255)); }

template <int kChannels>
void filter_row(const uint8_t* in, const Filter& filter, uint8_t* out) {
  for (const auto& window : filter.windows) {
    int32_t sums[kChannels];
    std::fill_n(sums, kChannels, kHalf);
    const uint8_t* pixel = in + static_cast<ptrdiff_t>(window.begin) * kChannels;
    const int32_t* weight = filter.weights.data() + window.weights;
    for (int k = 0; k < window.count; ++k, pixel += kChannels) {
      for (int c = 0; c < kChannels; ++c) sums[c] += pixel[c] * weight[k];
    }
    for (int c = 0; c < kChannels; ++c) *out++ = to_byte(sums[c]);
  }
}

// Filters the rows `begin` to `end` - 1 of the image.
StoredImage filter_rows(const StoredImage& image, const Filter& filter, int begin, int end) {
  auto out = stored_image(image.channels, end - begin, static_cast<int>(filter.windows.size()));
  const auto row = image.channels == 1 ? filter_row<1> : filter_row<3>;
  for (int y = begin; y < end; ++y) row(image.row(y), filter, out.row(y - begin));
  return out;
}

// The image's first row is row `above` of the one that the filter was made for.
StoredImage filter_columns(const StoredImage& image, const Filter& filter, int above) {
  auto out = stored_image(image.channels, static_cast<int>(filter.windows.size()), image.width);
  const size_t count = image.row_bytes();
  std::vector<int32_t> sums(count);
  for (int y = 0; y < out.height; ++y) {
    const auto& window = filter.windows[static_cast<size_t>(y)];
    std::ranges::fill(sums, kHalf);
    for (int k = 0; k < window.count; ++k) {
      const int32_t weight = filter.weights[window.weights + static_cast<size_t>(k)];
      const uint8_t* in = image.row(window.begin + k - above);
      for (size_t i = 0; i < count; ++i) sums[i] += in[i] * weight;
    }
    uint8_t* to = out.row(y);
    for (size_t i = 0; i < count; ++i) to[i] = to_byte(sums[i]);
  }
  return out;
}

// One direction of the central square: the length that the whole image gets, and where the square begins.
struct Direction {
  int64_t length, first;
};

// torchvision's: the longer side is truncated, and the place of the square rounded, halves to even.
Direction direction(int side, int shorter, int size) {
  const auto length =
      static_cast<int64_t>(static_cast<double>(int64_t{size} * side) / static_cast<double>(shorter));
  return {length, static_cast<int64_t>(std::nearbyint(static_cast<double>(length - size) / 2))};
}

}  // namespace

StoredImage resized_center(const StoredImage& image, int size) {
  const int shorter = std::min(image.height, image.width);
  const auto down = direction(image.height, shorter, size);
  const auto across = direction(image.width, shorter, size);
  const auto rows = make_filter(image.width, across.length, across.first, size);
  const auto columns = make_filter(image.height, down.length, down.first, size);
  const int begin = columns.windows.front().begin;
  const int end = columns.windows.back().begin + columns.windows.back().count;
  return filter_columns(filter_rows(image, rows, begin, end), columns, begin);
}

}  // namespace lockstep
