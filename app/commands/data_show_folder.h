// A folder of images as `lockstep data show` looks at it: also one that no training can use.
#pragma once

#include <optional>
#include <string>

#include <lockstep/app/commands/contact_sheet.h>
#include <lockstep/app/commands/data_summary.h>
#include <lockstep/app/train/plan/data_flags.h>

namespace lockstep {

struct ShownFolder {
  DataSummary summary;
  std::optional<plot::Raster> sheet = {};
};

// Decodes all images, and counts those that can be read. flags.image_size: as train resizes them. sheet: also
// makes a contact sheet, of images that are resized to one size where they have several. Throws what
// find_image_folder() throws for what it cannot look at.
ShownFolder look_at_folder(const std::string& path, const DataFlags& flags, bool sheet);

}  // namespace lockstep
