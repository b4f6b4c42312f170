// The changes of pixels between a data set and a network: augmentation and normalisation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/data/images/augmentation.h>
#include <lockstep/data/images/normalize.h>

namespace lockstep {

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

}  // namespace lockstep
