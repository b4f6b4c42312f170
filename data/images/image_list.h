// Image files in an order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <vector>

namespace lockstep {

struct ImageFile {
  std::filesystem::path path;
  int64_t label = 0;     // index of its class in class_names
  int64_t size = -1;     // bytes that it had when it was found; -1: not known
  int64_t written = -1;  // when it was last written, as it was found: nanoseconds since 1970; -1: not known
};

// Copies share one text of all names, and so does first(): 70,000 files of a folder take 3 MB. An ImageFile
// is made when it is asked for. Several threads may read a list at once.
class ImageList {
 public:
  ImageList() = default;
  ImageList(const std::vector<ImageFile>& files);
  ImageList(std::initializer_list<ImageFile> files);

  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  ImageFile operator[](size_t i) const;  // i: below size()
  ImageFile at(size_t i) const;          // throws std::out_of_range
  ImageFile front() const { return (*this)[0]; }

  // They make no path. i: below size().
  int64_t label(size_t i) const;
  int64_t written(size_t i) const;

  // Asks the file system for a size that is not known. Returns -1 for a file that cannot be asked for it.
  int64_t bytes(size_t i) const;

  // The first files of the list. count: size() at most.
  ImageList first(size_t count) const;

  class Iterator {
   public:
    using value_type = ImageFile;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    Iterator() = default;
    Iterator(const ImageList& list, size_t at) : list_(&list), at_(at) {}
    ImageFile operator*() const { return (*list_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) {
      auto before = *this;
      ++at_;
      return before;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const ImageList* list_ = nullptr;
    size_t at_ = 0;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, count_}; }

 private:
  friend class ImageListBuilder;
  struct Files;
  ImageList(std::shared_ptr<const Files> files, size_t count);

  std::shared_ptr<const Files> files_;
  size_t count_ = 0;
};

}  // namespace lockstep
