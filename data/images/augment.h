// Random changes of training images, drawn for each row of each epoch.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/data/images/augmentation.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Returns the sources with their images of bytes augmented, as bytes of the same size; augmentation.h says
// what a row draws. What is augmented is `input`, or without a name the one input of uint8 (channels, height,
// width). Evaluations get the rows of epoch 0, so give them sources without augmentation. Throws UsageError
// as check() does. The factory throws DataError if a source has no such input, without a name several, and
// for sides above 32,767.
SourceFactory augmented(SourceFactory bytes, Augmentation augmentation, uint64_t seed,
                        std::string input = {});

}  // namespace lockstep
