// A folder of class folders: CLASS/IMAGE.png, or deeper, CLASS/images/IMAGE.png.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/data/images/listed_folder.h>

namespace lockstep {

struct ClassImage {
  std::string name;  // below the class folder: "1.png" or "images/1.png"
  int64_t size = 0;  // in bytes, at least 1
  int64_t written = 0;
  uint64_t file[2]{};
};

struct ClassFolder {
  std::string name;
  std::vector<ClassImage> images = {};  // may be empty
};

// The entries that were found and are not among the images.
struct LeftOut {
  int64_t count = 0;
  std::string first = {};  // its path

  void add(const std::string& path) {
    if (count++ == 0) first = path;
  }
};

struct LeftOutFiles {
  LeftOut other_files, outside /* of class folders */;
  std::vector<std::string> faults = {};  // of unreadable files: one sentence each, which begins with the path
};

// Returns the class folders in order of their names. Adds what it leaves out. Throws DataError for a folder
// that cannot be read, for a class whose name is no UTF-8, for folders more than four deep in a class, and,
// unless skip_unreadable, for an image that cannot be read, is empty, has another format, or whose name is no
// UTF-8.
std::vector<ClassFolder> read_class_folders(const std::string& path, bool skip_unreadable,
                                            LeftOutFiles& left_out);

}  // namespace lockstep
