#include <lockstep/data/images/image_list.h>

#include <fmt/format.h>

#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <lockstep/data/images/image_list_builder.h>

namespace lockstep {

struct ImageList::Files {
  struct Folder {
    std::string path;
    int64_t label;
  };
  struct File {
    uint64_t name;  // where it begins in names
    int64_t size, written;
    uint32_t folder;
  };
  std::vector<Folder> folders = {};
  std::vector<File> files = {};
  std::string names = {};  // one behind the other

  std::string path(size_t i) const {
    const auto& file = files[i];
    const auto end = i + 1 < files.size() ? files[i + 1].name : names.size();
    const auto& folder = folders[file.folder].path;
    std::string path;
    path.reserve(folder.size() + (end - file.name));
    path += folder;
    return path.append(names, file.name, end - file.name);
  }
};

namespace {

// "photos/cat/" of photos/cat/1.png.
std::string_view folder_of_file(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? std::string_view() : path.substr(0, slash + 1);
}

ImageList image_list_of(std::span<const ImageFile> files) {
  ImageListBuilder builder;
  builder.reserve(files.size());
  std::map<std::pair<std::string, int64_t>, uint32_t> folders;
  for (const auto& file : files) {
    const auto& path = file.path.native();
    const std::string folder(folder_of_file(path));
    const auto [found, added] = folders.try_emplace({folder, file.label});
    if (added) found->second = builder.add_folder(folder, file.label);
    builder.add(found->second, std::string_view(path).substr(folder.size()), file.size, file.written);
  }
  return builder.list();
}

}  // namespace

ImageList::ImageList(const std::vector<ImageFile>& files) : ImageList(image_list_of(files)) {}

ImageList::ImageList(std::initializer_list<ImageFile> files)
    : ImageList(image_list_of({files.begin(), files.size()})) {}

ImageList::ImageList(std::shared_ptr<const Files> files, size_t count)
    : files_(std::move(files)), count_(count) {}

ImageFile ImageList::operator[](size_t i) const {
  const auto& file = files_->files[i];
  return {.path = files_->path(i), .label = label(i), .size = file.size, .written = file.written};
}

ImageFile ImageList::at(size_t i) const {
  if (i >= count_) throw std::out_of_range(fmt::format("file {} of a list of {}", i, count_));
  return (*this)[i];
}

int64_t ImageList::label(size_t i) const { return files_->folders[files_->files[i].folder].label; }

int64_t ImageList::written(size_t i) const { return files_->files[i].written; }

int64_t ImageList::bytes(size_t i) const {
  if (const auto known = files_->files[i].size; known >= 0) return known;
  std::error_code unreadable;
  const auto size = std::filesystem::file_size(files_->path(i), unreadable);
  return unreadable ? -1 : static_cast<int64_t>(size);
}

ImageList ImageList::first(size_t count) const {
  if (count > count_) throw std::out_of_range(fmt::format("the first {} files of {}", count, count_));
  return {files_, count};
}

ImageListBuilder::ImageListBuilder() : files_(std::make_shared<ImageList::Files>()) {}

void ImageListBuilder::reserve(size_t files) { files_->files.reserve(files); }

uint32_t ImageListBuilder::add_folder(std::string path, int64_t label) {
  files_->folders.push_back({std::move(path), label});
  return static_cast<uint32_t>(files_->folders.size() - 1);
}

void ImageListBuilder::add(uint32_t folder, std::string_view name, int64_t size, int64_t written) {
  files_->files.push_back({.name = files_->names.size(), .size = size, .written = written, .folder = folder});
  files_->names += name;
}

ImageList ImageListBuilder::list() {
  files_->names.shrink_to_fit();
  const auto count = files_->files.size();
  return {std::move(files_), count};
}

}  // namespace lockstep
