// The entries of a folder, read once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class EntryKind { kFile, kFolder, kOther /* a pipe, a socket, a device */, kUnreadable };

struct FolderEntry {
  std::string name;
  EntryKind kind = EntryKind::kFile;
  int error = 0;        // why it is unreadable, an errno
  int64_t size = 0;     // of a file, in bytes
  int64_t written = 0;  // when the file was last written: nanoseconds since 1970
  uint64_t file[2]{};   // device and number: names of one file, or links to one folder, have the same two
};

// Returns the entries in order of their names. A name that begins with a dot is hidden and left out. A
// symbolic link stands for what it leads to; one that leads nowhere is unreadable. Costs one readdir(), and
// one stat() of each entry that is no folder. Throws DataError if the folder cannot be read.
std::vector<FolderEntry> list_folder(const std::string& path);

// Returns true for names that end with .png, .jpg or .jpeg, in any case.
bool is_image_name(std::string_view name);

// Returns true for images of other formats, which are not read: .bmp, .gif, .webp, ...
bool is_other_image_name(std::string_view name);

// Returns the name with small letters for capital ones of ASCII.
std::string in_small_letters(std::string_view name);

}  // namespace lockstep
