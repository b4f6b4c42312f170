// Labelled images of another size, such as those of IDX and CIFAR files.
#pragma once

#include <lockstep/data/dataset.h>

namespace lockstep {

// Returns the images as squares: resize_and_crop() of each (pixels.h), by this number of threads. Labels are
// shared, and so are images that have the size already. Throws UsageError for workers below 1 and as
// resize_and_crop() does.
ImageSet resized_images(const ImageSet& set, int size, int workers);

}  // namespace lockstep
