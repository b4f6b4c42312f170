// Folders of image files as data sets.
#pragma once

#include <string>

#include <lockstep/app/train/plan/loaded_data.h>

namespace lockstep {

// As load_data() does for such a folder. processes_on_host: as there.
LoadedData load_image_folder(const std::string& path, const DataFlags& flags, int processes_on_host);

}  // namespace lockstep
