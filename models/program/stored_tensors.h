// Reads the lists of a file's weights and constants.
#pragma once

#include <string>
#include <vector>

#include <lockstep/models/program/archive.h>
#include <lockstep/models/program/graph.h>

namespace lockstep::program {

// Bytes of one element.
size_t element_bytes(ElementType type);

// Return the tensors of data/weights/GRAPH_weights_config.json and
// data/constants/GRAPH_constants_config.json, in the file's order. Throw FormatError for what is a pickle, no
// dense tensor, or lies beyond its record; for weights that share a record and are not the same tensor; and,
// from the archive, WeightsError for a record that is missing.
std::vector<StoredTensor> read_weights(const Archive& archive, const std::string& graph);
std::vector<StoredTensor> read_constants(const Archive& archive, const std::string& graph);

}  // namespace lockstep::program
