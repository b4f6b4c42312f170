// The rows of files that `lockstep predict` is given.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <lockstep/app/commands/decoded_files.h>
#include <lockstep/app/files/network_facts.h>
#include <lockstep/data/images/pixels.h>
#include <lockstep/support/types.h>

namespace lockstep {

// How a network's rows are made of files.
struct RowsOfNetwork {
  NetworkFacts facts;
  bool takes_bytes = false;                // a program may take uint8 itself
  std::optional<int64_t> image_size = {};  // of image files; empty: as the network's facts say
};

// Returns the rows of a safetensors file, (rows, row_shape...) on the host. It has one tensor of such rows,
// or one with the name of the network's input, or those of a data set's test rows. They are uint8 if the
// network was trained on bytes, or float32 as the network takes them. Throws DataError, which lists what the
// file has, for anything else.
torch::Tensor rows_in_file(const std::string& path, const RowsOfNetwork& network);

// Returns how image files are decoded for the network. Throws DataError for a network that was trained on
// floats, or on rows that are no images of one or three channels, and UsageError for another image_size than
// the network's.
DecodeOptions decoding_for(const RowsOfNetwork& network);

// Throws DataError for an image with other sizes than the network's, whose row_shape has three.
void check_size(const Pixels& image, const std::string& path, const NetworkFacts& facts);

// Returns the images as rows of uint8. Images with a fault are left out, the others have the network's size.
torch::Tensor rows_of_images(std::span<const DecodedFile> images, const RowsOfNetwork& network);

// Returns a factory of sources that give these rows as the network takes them: bytes are normalised as in
// training, on the device, a batch at a time.
SourceFactory sources_of_rows(const torch::Tensor& rows, const RowsOfNetwork& network);

// Returns how many rows are read together: a number that depends on the network alone, so that no answer
// depends on the machine.
int64_t rows_at_once(const NetworkFacts& facts);

}  // namespace lockstep
