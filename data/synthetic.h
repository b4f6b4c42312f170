// Images drawn from a seed, for runs without files. A small network learns them well above chance, but not to
// 100 %.
#pragma once

#include <cstdint>

#include <lockstep/data/dataset.h>

namespace lockstep {

// Returns `train_rows` and `test_rows` rows of images of this shape. The same seed gives the same bytes on
// every machine, and the first rows do not depend on how many follow. Throws UsageError when a count is below
// 1, for channels that are not 1 to 4, for a height or width that is not 1 to 1,024, and for classes that are
// not 1 to 256.
//
// Each class has a prototype of a few soft blobs per channel. An image is the prototype of its class,
// shifted, mixed with another prototype that is shifted differently and is sometimes the stronger of the two,
// plus noise. Sizes and shifts grow with the smaller side. It uses integers only, since the random
// distributions of standard libraries differ.
Dataset make_synthetic(uint64_t seed, int64_t train_rows, int64_t test_rows, const ImageShape& shape = {},
                       int64_t classes = 10);

}  // namespace lockstep
