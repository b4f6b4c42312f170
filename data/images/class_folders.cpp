#include <lockstep/data/images/class_folders.h>

#include <fmt/format.h>

#include <utility>

#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>
#include <lockstep/support/utf8.h>

namespace lockstep {
namespace {

constexpr int kDeepestImages = 4;  // folders in a class folder

// Returns a fault of the entry, found without a look into it; empty: none.
std::string fault_of_entry(const FolderEntry& entry) {
  if (!is_utf8(entry.name)) return "has a name that is no UTF-8";
  if (entry.kind == EntryKind::kUnreadable) return "cannot be read: " + errno_text(entry.error);
  if (entry.kind == EntryKind::kOther) return "is not a regular file";
  if (is_other_image_name(entry.name)) return "is an image of a format that is not read, PNG and JPEG are";
  return entry.size == 0 ? "is empty" : "";
}

class ClassReader {
 public:
  ClassReader(bool skip_unreadable, LeftOutFiles& left_out)
      : skip_unreadable_(skip_unreadable), left_out_(left_out) {}

  ClassFolder read(const std::string& path, std::string name) {
    ClassFolder folder{.name = std::move(name)};
    add_images(path, "", 0, folder.images);
    return folder;
  }

  // Throws DataError, or leaves the path out.
  void refuse(const std::string& path, const std::string& fault) {
    const auto shown = is_utf8(path) ? path : with_escaped_bytes(path);
    if (!skip_unreadable_) {
      throw DataError(fmt::format("{} {}", shown, fault),
                      "replace, rename or remove it, or leave such files out with " +
                          NamedOption{.key = "skip_unreadable"});
    }
    left_out_.faults.push_back(shown + " " + fault);
  }

 private:
  // Adds the images of the folder path/below, where `below` is empty or ends with a slash.
  void add_images(const std::string& path, const std::string& below, int depth,
                  std::vector<ClassImage>& images) {
    const auto folder = below.empty() ? path : path + "/" + below.substr(0, below.size() - 1);
    if (depth > kDeepestImages) {
      throw DataError(
          fmt::format("{} is {} folders deep in a class folder, {} are read", folder, depth, kDeepestImages),
          "move its images up, and see whether a symbolic link leads in a circle");
    }
    for (auto& entry : list_folder(folder)) {
      if (entry.kind == EntryKind::kFolder) {
        add_images(path, below + entry.name + "/", depth + 1, images);
      } else {
        add_file(folder, below, std::move(entry), images);
      }
    }
  }

  void add_file(const std::string& folder, const std::string& below, FolderEntry entry,
                std::vector<ClassImage>& images) {
    const auto path = [&] { return folder + "/" + entry.name; };
    if (!is_image_name(entry.name) && !is_other_image_name(entry.name)) {
      left_out_.other_files.add(path());
      return;
    }
    if (const auto fault = fault_of_entry(entry); !fault.empty()) {
      refuse(path(), fault);
      return;
    }
    images.push_back({.name = below.empty() ? std::move(entry.name) : below + entry.name,
                      .size = entry.size,
                      .written = entry.written,
                      .file = {entry.file[0], entry.file[1]}});
  }

  const bool skip_unreadable_;
  LeftOutFiles& left_out_;
};

}  // namespace

std::vector<ClassFolder> read_class_folders(const std::string& path, bool skip_unreadable,
                                            LeftOutFiles& left_out) {
  std::vector<ClassFolder> classes;
  ClassReader reader(skip_unreadable, left_out);
  for (auto& entry : list_folder(path)) {
    const auto below = path + "/" + entry.name;
    if (entry.kind == EntryKind::kUnreadable) {  // a class, if it is a link to a folder that has gone
      reader.refuse(below, "cannot be read: " + errno_text(entry.error));
      continue;
    }
    if (entry.kind != EntryKind::kFolder) {
      if (is_image_name(entry.name) || is_other_image_name(entry.name)) left_out.outside.add(below);
      continue;
    }
    if (!is_utf8(entry.name)) {
      throw DataError(fmt::format("class folder {} has a name that is no UTF-8", with_escaped_bytes(below)),
                      "rename it: the names of classes are kept in files of weights, as text");
    }
    classes.push_back(reader.read(below, entry.name));
  }
  return classes;
}

}  // namespace lockstep
