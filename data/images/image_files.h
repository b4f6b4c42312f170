// The images of a folder of class folders. Finds them; opens none.
//
//   FOLDER/train/CLASS/IMAGE and FOLDER/test/CLASS/IMAGE, or val/ in the place of test/
//   FOLDER/CLASS/IMAGE, or FOLDER/train/ alone, split by a share
//
// train/ may be called training, test/ testing, and val/ valid or validation, with any capitals. They are
// read as halves of a split only where there is a train/, and test/ or val/, or nothing else: a class may be
// called "train". Images end with .png, .jpg or .jpeg, in any case; they may lie in folders of a class
// folder, four deep. Hidden files and folders, whose names begin with a dot, are left out. Symbolic links are
// followed, to files and to folders; one that leads nowhere is an unreadable file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/data/images/image_list.h>

namespace lockstep {

struct ImageFolder {
  std::vector<std::string> class_names = {};  // in order of their bytes, as torchvision numbers them
  // In order of the files' names below their class folders, then of classes. Numbered files so keep the order
  // of their numbers, whatever their class.
  ImageList train = {}, test = {};
  std::string digest = {};                // SHA-256 of names below the folder, and sizes
  std::vector<std::string> notices = {};  // one sentence each, without a full stop
  // Files that skip_unreadable has left out: one sentence each, which begins with the path. No notice.
  std::vector<std::string> unreadable = {};
};

struct FolderOptions {
  // The share of images for testing, at least 0 and below 1, in a folder without test/ and val/. An image is
  // for testing if a hash of CLASS/NAME says so: new files move none between the two. 0: no split.
  double test_share = 0;
  // Leaves files out that cannot be read, are empty or have a name of another format, and says which.
  bool skip_unreadable = false;
  // Says in notices what would be refused since no training can use it: no test set and no share, half a data
  // set without images, classes without images or only in test, names that differ by case. For looking at a
  // folder. The classes are those of both halves.
  bool only_notice = false;
};

// Costs one readdir() and stat() per entry. Throws UsageError for a share beyond its bounds, and where there
// is a test/ already. Throws DataError, which names the path: for a folder that holds no class folders, or no
// test/ and no share; an image that cannot be read, is empty or has another format; a class without images; a
// class that is only in test; and two classes whose names differ by case alone.
ImageFolder find_image_folder(const std::filesystem::path& folder, const FolderOptions& options = {});

// Returns a sentence for the images that are in train and in test with the same bytes, which a test then
// counts as unseen; empty: there are none. Reads the files that have the size of one of the other half.
std::string same_in_train_and_test(const ImageFolder& folder);

}  // namespace lockstep
