// Finds the two halves of a folder of images; image_files.h has the rule.
#pragma once

#include <string>
#include <vector>

#include <lockstep/data/images/class_folders.h>

namespace lockstep {

struct FolderLayout {
  std::string train = {};  // a folder of class folders, maybe the one that was named
  std::string test = {};   // empty: there is none
  LeftOut outside = {};    // images beside the two halves
  std::vector<std::string> notices = {};
};

// Looks at the entries of this folder, and at those of its test/ if it has a val/, too. Throws DataError if
// it cannot be read, holds no folders, or holds one half twice.
FolderLayout layout_of(const std::string& folder);

}  // namespace lockstep
