// The way of pixels from a data set to a network.
#pragma once

#include <string>

namespace lockstep {

struct TrainFlags;
struct TrainPlan;

// Sets plan.pixels and plan.facts, and augments plan.data's training rows, which are bytes still. A stream is
// measured by a sample. Throws UsageError for data without an input of images of bytes, for means of other
// channels, and for a program that takes bytes.
void set_pixels(const TrainFlags& flags, TrainPlan& plan);

// "crop:4,flip on training images; normalised by mean 0.5 and deviation 0.25, measured on 10,000 images"
std::string pixels_text(const TrainPlan& plan);

}  // namespace lockstep
