// Data that a network is tested on, held against those that it was trained on.
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/files/network_facts.h>
#include <lockstep/app/train/plan/data_flags.h>
#include <lockstep/app/train/plan/dataset.h>
#include <lockstep/data/images/normalize.h>

namespace lockstep {

// Returns the flags with which images of files become rows of the network: its size and channels where
// flags.path is a folder of images, and nothing else is given.
DataFlags with_facts(DataFlags flags, const NetworkFacts& facts);

// Compares what load_data() has returned with the facts, before bytes become floats. Throws DataError for
// rows of another shape, for more classes, and for a class of another name. Returns what is odd: one sentence
// each, without a full stop.
std::vector<std::string> check_facts(const NetworkFacts& facts, const LoadedData& data);

// Returns how the network's pixels are normalised.
Normalization normalization_of(const NetworkFacts& facts);

}  // namespace lockstep
