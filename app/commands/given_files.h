// The files that a command's words name: files, and images of the folders among them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// A file that cannot be used. fault: one sentence without a full stop, which begins with the path.
struct FaultyFile {
  std::string path, fault;
};

struct GivenFiles {
  std::vector<std::string> files = {};      // of a folder in order of their names, at the folder's place
  std::vector<FaultyFile> unreadable = {};  // of folders: images of other formats, folders without permission
  int64_t others = 0;                       // files of folders whose names are none of an image
  std::vector<std::string> circles = {};    // symbolic links to a folder above them, which are not followed
};

// Replaces each folder by its PNG and JPEG images and those of the folders in it. As in a data set, names
// that begin with a dot are left out, and symbolic links are followed, but not in a circle. Other words stay
// as they are, also those of files that are not there. Throws DataError for a folder without images, or with
// folders more than 16 deep.
GivenFiles files_of(const std::vector<std::string>& words);

}  // namespace lockstep
