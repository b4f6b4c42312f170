// Images made from a seed, for runs without files. A small network learns them well above chance, and not to
// 100 %.
#pragma once

#include <cstdint>

#include <lockstep/data/dataset.h>

namespace lockstep {

// `train_rows` and `test_rows` rows of 28 x 28 images in 10 classes; the same seed gives the same bytes
// everywhere, and the first rows do not depend on how many follow. Throws UsageError when a count is below 1.
//
// Each class is a prototype of a few soft blobs. An image is its class's prototype, shifted, mixed with
// another one that is shifted differently and is sometimes the stronger of the two, plus noise. Integers
// only, no library's random distributions: they differ between compilers.
Dataset make_synthetic(uint64_t seed, int64_t train_rows, int64_t test_rows);

}  // namespace lockstep
