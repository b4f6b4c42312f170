// A checkpoint: a folder of tensors and texts that appears whole or not at all.
//
//   model.safetensors, ...   tensors by name
//   state.json, ...          texts
//   manifest.json            {"format": 1, "files": {NAME: {"bytes": SIZE, "sha256": DIGEST}, ...}}, written
//   last
//
// It is written under a temporary name beside the final one, synchronised to the disk, and then renamed. So a
// folder with a checkpoint's name is complete, whenever the writer was killed; damage that comes later shows
// in the manifest's digests. Nothing in it is executed when it is read.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <lockstep/data/safetensors.h>

namespace lockstep {

// By file name, without a folder. Names of `tensors` end in ".safetensors", those of `texts` do not.
struct Checkpoint {
  std::map<std::string, TensorFile> tensors;
  std::map<std::string, std::string> texts;
};

// Writes the checkpoint to `folder`, whose parent must exist, and waits for the disk. Replaces a checkpoint
// of that name, but no folder with other files in it. Also removes what killed processes have left in the
// parent. Throws OutputError, and UsageError for the name of a file; then nothing is left of the new
// checkpoint, and what was there still is.
void write_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint);

// Reads all files and compares them with the manifest. Throws WeightsError that says what is wrong.
void verify_checkpoint(const std::filesystem::path& folder);

// Verifies and reads the checkpoint. memory: for the tensors. Throws WeightsError.
Checkpoint read_checkpoint(const std::filesystem::path& folder,
                           const TensorAllocator& memory = heap_memory());

// Lets the link `name` in the checkpoint's parent point to it; replaces an older link at once. Throws
// OutputError.
void link_checkpoint(const std::filesystem::path& folder, const std::string& name);

// Removes the checkpoint: first its name, then the files. Throws OutputError.
void remove_checkpoint(const std::filesystem::path& folder);

}  // namespace lockstep
