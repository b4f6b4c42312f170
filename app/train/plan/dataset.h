// The data set a command works on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <lockstep/app/files/network_facts.h>
#include <lockstep/app/train/plan/data_flags.h>
#include <lockstep/app/train/plan/loaded_data.h>
#include <lockstep/data/images/normalize.h>
#include <lockstep/data/known_data.h>
#include <lockstep/models/factory.h>

namespace lockstep {

class Program;

// Finds out what flags.path, or without one data_folder(), holds, and reads it. targets: as of
// load_tensor_data(); other data have none to choose.
//
// Images of a folder that fit into flags.data_memory are decoded into memory, others when a batch asks for
// them; test images are decoded into memory, too, if they take half of it at most. Without flags.channels
// they have one channel if all files are grey, else three.
//
// processes_on_host: that read the same data at the same time, and share the host's memory.
//
// Throws UsageError for flags that such data do not have and for a limit above the number of rows,
// MemoryError for a file that memory cannot hold, and what reading the files throws.
LoadedData load_data(const DataFlags& flags, uint64_t seed, std::span<const std::string> targets = {},
                     int processes_on_host = 1);

// "img/s" if rows are images, else "rows/s".
std::string speed_unit(const TrainingData& data);

// Returns what a network for these data needs to be used without them, but for image size and normalisation.
// Nothing for data with several inputs, with sizes that differ between batches, without classes or with more
// than 100,000. Call it before as_images().
std::optional<NetworkFacts> facts_of(const TrainingData& data);

// Returns the name of the one input of images (channels, height, width) of bytes; nothing where there is
// none, or several.
std::optional<std::string> image_input_of(const TrainingData& data);

// Returns the data as the models of models/factory.h take them: bytes become floats. Throws DataError, which
// names the model, unless a row is one image (channels, height, width) of floats or uint8 with one label, and
// UsageError for a normalisation of other channels, or of images that are no bytes.
TrainingData as_images(TrainingData data, const std::string& model, const Normalization& normalization = {});

// Returns the data as the program takes them: the one input of images of bytes becomes floats where the
// program's input is of floats. All else stays. Throws UsageError as as_images() does.
TrainingData as_inputs(TrainingData data, const Program& program, const Normalization& normalization = {});

// Returns the spec of this model for such rows, which as_images() has returned.
ModelSpec model_spec(const std::string& model, const TrainingData& data);

}  // namespace lockstep
