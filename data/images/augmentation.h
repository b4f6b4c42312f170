// How training images are changed at random, and the numbers that they draw for it. Needs no torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct ResizedCrop {
  double least_area = .08;  // of the image, above 0 and at most 1
};

// Everything is off by default. The steps are applied in this order; black is 0, in all channels.
struct Augmentation {
  // A part with a random share of the area, least_area .. 1, and a random ratio of width to height, 3/4 ..
  // 4/3 of pixels, at a random place in the image, is enlarged to the image's size, as torchvision's
  // resized_crop() does it bilinearly. Not together with crop.
  std::optional<ResizedCrop> resized_crop = {};
  int crop = 0;       // black pixels on each side, then a random part of the image's size
  bool flip = false;  // every second image is mirrored, left to right
  int cutout = 0;     // side of a black square around a random pixel; what lies outside the image is cut off

  bool any() const { return resized_crop || crop > 0 || flip || cutout > 0; }
};

// Reads "crop:4,flip,cutout:8" or "resized-crop:.25,flip", in any order; "resized-crop" alone has the least
// area .08, and "none" is no augmentation. Throws UsageError for other names, which suggests one, numbers out
// of range, names that come twice, and crop with resized-crop.
Augmentation parse_augmentation(std::string_view text);

// Returns the text that parse_augmentation() reads, in the order of application; "none" for none.
std::string to_string(const Augmentation& augmentation);

// Throws UsageError for numbers out of range, as parse_augmentation() does.
void check(const Augmentation& augmentation);

// The draws of an image depend on (seed, epoch, row) alone, row being its number in the source that is
// augmented: rows that are held out do not count. So the bytes are the same for any number of replicas,
// processes and workers, on CPUs and GPUs, and after a resume. All of it is done in integers. In Python, with
// draws() and below() of scripts/compare/twin/split_mix64.py:
//
//   random = draws(seed, 5, epoch, row)
//   top, left, height, width = 0, 0, H, W  # the part that is shown
//   if resized_crop:
//       least = max(1, round(least_area * 65536))
//       for _ in range(10):
//           area = H * W * (least + below(random, 65536 - least + 1)) >> 16
//           t = below(random, 2 * 2413252 + 1) - 2413252  # 24 bits of half the logarithm of the ratio
//           side = isqrt(area << 16)
//           w, h = side * exp24(t) + 2**31 >> 32, side * exp24(-t) + 2**31 >> 32
//           if 1 <= w <= W and 1 <= h <= H:
//               height, width = h, w
//               top, left = below(random, H - h + 1), below(random, W - w + 1)
//               break
//   if crop:
//       top, left = below(random, 2 * crop + 1) - crop, below(random, 2 * crop + 1) - crop
//   flipped = flip and below(random, 2) == 1
//   if cutout:
//       y, x = below(random, H), below(random, W)
//       black = (range(y - cutout // 2, y - cutout // 2 + cutout), range(x - cutout // 2, ...))
//
//   def exp24(t):  # of t / 2**24, in 24 bits
//       p = 2796203 + (t * 699051 >> 24)
//       p = 8388608 + (t * p >> 24)
//       p = 16777216 + (t * p >> 24)
//       return 16777216 + (t * p >> 24)
//
// A part is enlarged as Pillow does it: first along x, then along y, each rounded to a byte. Pixel o of out
// is the sum of the pixels i of in, times their weights max(0, 2 * out - abs((2 * i + 1) * out - (2 * o + 1)
// * in)), which are divided by their sum and rounded to 22 bits, half up.

}  // namespace lockstep
