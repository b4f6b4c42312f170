// Folders of files that are called as images, for tests of what looks at names and sizes alone.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/images/image_files.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/temp_folder.h>

namespace lockstep::testing {

class ImageTree {
 public:
  // Each file has its own path as content. A path that ends with a slash is a folder.
  ImageTree(std::initializer_list<std::string> paths = {}) {
    for (const auto& path : paths) add(path);
  }

  void add(const std::string& path) const { add(path, path); }
  void add(const std::string& path, const std::string& content) const {
    const auto whole = folder_.path() / path;
    if (path.ends_with('/')) {
      std::filesystem::create_directories(whole);
      return;
    }
    std::filesystem::create_directories(whole.parent_path());
    write_file(whole, content);
  }

  const std::filesystem::path& path() const { return folder_.path(); }

  // "train/cat/1.png 0" for each image of a half.
  std::vector<std::string> rows(const ImageList& half) const {
    std::vector<std::string> rows;
    for (const auto& file : half) {
      rows.push_back(file.path.lexically_relative(folder_.path()).string() + " " +
                     std::to_string(file.label));
    }
    return rows;
  }

 private:
  TempFolder folder_;
};

}  // namespace lockstep::testing
