// Makes an ImageList without a path for each file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <lockstep/data/images/image_list.h>

namespace lockstep {

class ImageListBuilder {
 public:
  ImageListBuilder();

  void reserve(size_t files);

  // Returns the number of a folder, whose files have this label. path: ends with a slash, or is empty.
  uint32_t add_folder(std::string path, int64_t label);

  // Adds a file of this folder behind the others. name: below the folder. size, written: as of ImageFile.
  void add(uint32_t folder, std::string_view name, int64_t size, int64_t written);

  // Leaves nothing to add to.
  ImageList list();

 private:
  std::shared_ptr<ImageList::Files> files_;
};

}  // namespace lockstep
