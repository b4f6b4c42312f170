// The way of pixels from a data set to a network: augmentation and normalisation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/data/images/augmentation.h>
#include <lockstep/data/images/normalize.h>

namespace lockstep {

struct TrainFlags;
struct TrainPlan;

// The value of --normalize.
struct NormalizeFlag {
  bool automatic = false;    // by mean and deviation of the training rows
  Normalization given = {};  // else by these; empty: bytes become byte / 255

  bool any() const { return automatic || !given.mean.empty(); }
};

// Reads "auto", "none" and "M:D", the means and the deviations of pixels / 255, one for all channels or a
// list with commas: "0.49,0.48,0.45:0.25,0.24,0.26". Throws UsageError.
NormalizeFlag parse_normalize(const std::string& text);

// The text that parse_normalize() reads.
std::string to_string(const NormalizeFlag& flag);
std::string normalize_text(const Normalization& normalization);

// A plan's work on pixels.
struct PixelChanges {
  Augmentation augmentation = {};             // of training rows
  Normalization normalization = {};           // of all rows
  std::optional<int64_t> measured_rows = {};  // the training rows that --normalize auto has looked at
};

// Sets plan.pixels and plan.facts, and augments plan.data's training rows, which are bytes still. A stream is
// measured by a sample. Throws UsageError for data without an input of images of bytes, for means of other
// channels, and for a program that takes bytes.
void set_pixels(const TrainFlags& flags, TrainPlan& plan);

// "crop:4,flip on training images; normalised by mean 0.5 and deviation 0.25, measured on 10,000 images"
std::string pixels_text(const TrainPlan& plan);

}  // namespace lockstep
