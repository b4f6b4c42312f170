#include <lockstep/data/images/image_files.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include <lockstep/data/file_digest.h>
#include <lockstep/data/images/class_folders.h>
#include <lockstep/data/images/folder_layout.h>
#include <lockstep/data/images/image_list_builder.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/xxhash64.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/utf8.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// One half: its class folders, of which some may be empty.
struct Half {
  std::string path;
  std::vector<ClassFolder> classes = {};
};

// Without slashes at its end.
std::string folder_text(const fs::path& folder) {
  auto text = folder.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

// Refuses a folder, or only says why it would be.
class Judge {
 public:
  Judge(bool only_notice, std::vector<std::string>& notices) : only_notice_(only_notice), notices_(notices) {}

  void refuse(std::string message, ErrorText hint) const {
    if (!only_notice_) throw DataError(std::move(message), std::move(hint));
    notices_.push_back(std::move(message));
  }

 private:
  const bool only_notice_;
  std::vector<std::string>& notices_;
};

ErrorText share_option() { return NamedOption{.key = "test_share"}; }

// Returns whether a hash of CLASS/NAME says that the image is for testing.
bool is_for_testing(const std::string& name, double share) {
  const auto hash = xxhash64(std::as_bytes(std::span(name)));
  return std::ldexp(static_cast<double>(hash >> 11), -53) < share;
}

Half split_off(Half& train, double share) {
  Half test{.path = train.path};
  for (auto& folder : train.classes) {
    const auto first = std::stable_partition(
        folder.images.begin(), folder.images.end(),
        [&](const auto& image) { return !is_for_testing(folder.name + "/" + image.name, share); });
    test.classes.push_back({.name = folder.name, .images = {first, folder.images.end()}});
    folder.images.erase(first, folder.images.end());
  }
  return test;
}

void check_share(double share, const FolderLayout& layout, const Judge& judge) {
  if (!(share >= 0 && share < 1)) {
    throw UsageError(share_option() +
                     fmt::format(" is {}, a share from 0 up to but not 1 was expected", share));
  }
  if (share > 0 && !layout.test.empty()) {
    throw UsageError(share_option() + fmt::format(" is {}, but there is a test set, {}", share, layout.test),
                     "leave it out, or name " + layout.train + " alone");
  }
  if (share == 0 && layout.test.empty()) {
    judge.refuse(layout.train + " holds class folders and no test set",
                 "put train/ and test/ into one folder and name that, or split the images with " +
                     share_option() + ", such as .1");
  }
}

bool has_images(const ClassFolder& folder) { return !folder.images.empty(); }

const ClassFolder* find_class(const Half& half, const std::string& name) {
  const auto found = std::ranges::find(half.classes, name, &ClassFolder::name);
  return found == half.classes.end() ? nullptr : &*found;
}

// Refuses names that differ by case alone, in one half or between the two.
void check_case(const Half& train, const Half& test, const Judge& judge) {
  std::map<std::u32string, std::pair<std::string, std::string>> seen;  // name without case: path, name
  for (const auto* half : {&train, &test}) {
    for (const auto& folder : half->classes) {
      const auto [at, added] =
          seen.try_emplace(without_case(folder.name), half->path + "/" + folder.name, folder.name);
      if (added || at->second.second == folder.name) continue;
      judge.refuse(fmt::format("the names of {} and {}/{} differ by case alone", at->second.first, half->path,
                               folder.name),
                   "merge the two classes, or give one another name");
    }
  }
}

void check_classes(const Half& train, const Half& test, bool split, const Judge& judge) {
  for (const auto& folder : test.classes) {
    const auto* same = find_class(train, folder.name);
    if (!has_images(folder) || (same && has_images(*same))) continue;
    const auto path = test.path + "/" + folder.name;
    if (split) {
      judge.refuse(fmt::format("{} of {} for testing, and none for training",
                               counted(static_cast<int64_t>(folder.images.size()), "image"), path),
                   "add images of this class, or choose a smaller " + share_option());
    } else {
      judge.refuse(fmt::format("class {} is only in {}, and has no image in {}", in_quotes(folder.name),
                               test.path, train.path),
                   "add images of this class for training, or remove its folder");
    }
  }
  for (const auto& folder : train.classes) {
    const auto* in_test = find_class(test, folder.name);
    if (has_images(folder) || (split && in_test && has_images(*in_test))) continue;
    judge.refuse(fmt::format("class folder {}/{} holds no images", train.path, folder.name),
                 "add PNG or JPEG images, or remove the folder");
  }
}

// The classes of train, and those of test that train has not.
std::vector<std::string> names_of_classes(const Half& train, const Half& test) {
  std::vector<std::string> names;
  for (const auto& each : train.classes) names.push_back(each.name);
  for (const auto& each : test.classes) {
    if (has_images(each) && !find_class(train, each.name)) names.push_back(each.name);
  }
  std::ranges::sort(names);
  return names;
}

struct Row {
  const ClassImage* image;
  int64_t label;
};

// The rows of a half in their order.
std::vector<Row> rows_of_half(const Half& half, const std::vector<std::string>& names) {
  std::vector<Row> rows;
  for (const auto& folder : half.classes) {
    const auto label = std::ranges::lower_bound(names, folder.name) - names.begin();
    for (const auto& image : folder.images) rows.push_back({.image = &image, .label = label});
  }
  std::ranges::sort(rows, [](const Row& a, const Row& b) {
    const int order = a.image->name.compare(b.image->name);
    return order != 0 ? order < 0 : a.label < b.label;
  });
  return rows;
}

ImageList files_of_half(const Half& half, const std::vector<Row>& rows, const std::vector<std::string>& names,
                        NameDigest& digest) {
  ImageListBuilder files;
  for (size_t label = 0; label < names.size(); ++label) {
    files.add_folder(half.path + "/" + names[label] + "/", static_cast<int64_t>(label));
  }
  files.reserve(rows.size());
  for (const auto& [image, label] : rows) {
    digest.add(names[static_cast<size_t>(label)] + "/" + image->name, image->size);
    files.add(static_cast<uint32_t>(label), image->name, image->size, image->written);
  }
  digest.add("", static_cast<int64_t>(rows.size()));  // the end of a half
  return files.list();
}

void note_left_out(std::vector<std::string>& notices, const LeftOut& left_out, std::string_view noun,
                   std::string_view what) {
  if (left_out.count == 0) return;
  notices.push_back(fmt::format("{} {}, such as {}", counted(left_out.count, noun), what, left_out.first));
}

// Names each class of train without images in test.
void note_untested(std::vector<std::string>& notices, const Half& train, const Half& test) {
  LeftOut untested;
  for (const auto& folder : train.classes) {
    const auto* same = find_class(test, folder.name);
    if (!same || !has_images(*same)) untested.add(in_quotes(folder.name));
  }
  if (untested.count == 0) return;
  const auto others = untested.count - 1;
  notices.push_back(fmt::format(
      "no image for testing is of {}{}", untested.first,
      others == 0 ? "" : fmt::format(" and of {} other class{}", others, others == 1 ? "" : "es")));
}

// A network of one class answers the same to everything.
void note_only_class(std::vector<std::string>& notices, const Half& train) {
  if (std::ranges::count_if(train.classes, has_images) != 1) return;
  const auto& only = *std::ranges::find_if(train.classes, has_images);
  notices.push_back(fmt::format(
      "all images for training are of one class, {}: there is nothing to tell apart", in_quotes(only.name)));
}

// Two names of one file cost no reading.
void note_shared(std::vector<std::string>& notices, const Half& train, const Half& test) {
  std::vector<std::pair<uint64_t, uint64_t>> seen;
  for (const auto& folder : train.classes) {
    for (const auto& image : folder.images) seen.emplace_back(image.file[0], image.file[1]);
  }
  std::ranges::sort(seen);
  LeftOut shared;
  for (const auto& folder : test.classes) {
    for (const auto& image : folder.images) {
      if (std::ranges::binary_search(seen, std::pair(image.file[0], image.file[1]))) {
        shared.add(test.path + "/" + folder.name + "/" + image.name);
      }
    }
  }
  note_left_out(
      notices, shared, "file",
      shared.count == 1 ? "for testing leads to one for training" : "for testing lead to files for training");
}

}  // namespace

ImageFolder find_image_folder(const fs::path& folder, const FolderOptions& options) {
  auto layout = layout_of(folder_text(folder));
  ImageFolder found{.notices = std::move(layout.notices)};
  const Judge judge(options.only_notice, found.notices);
  check_share(options.test_share, layout, judge);
  LeftOutFiles left_out;
  left_out.outside = std::move(layout.outside);
  const bool split = layout.test.empty();
  Half train{.path = layout.train,
             .classes = read_class_folders(layout.train, options.skip_unreadable, left_out)};
  Half test = split ? split_off(train, options.test_share)
                    : Half{.path = layout.test,
                           .classes = read_class_folders(layout.test, options.skip_unreadable, left_out)};
  check_case(train, test, judge);
  check_classes(train, test, split, judge);
  found.class_names = names_of_classes(train, test);
  NameDigest digest;
  found.train = files_of_half(train, rows_of_half(train, found.class_names), found.class_names, digest);
  found.test = files_of_half(test, rows_of_half(test, found.class_names), found.class_names, digest);
  found.digest = digest.hex();
  const bool unsplit = split && options.test_share == 0;  // which is said already
  if (found.train.empty() || (found.test.empty() && !unsplit)) {
    judge.refuse(fmt::format("{} holds {} for training and {} for testing", folder.string(),
                             counted(static_cast<int64_t>(found.train.size()), "image"),
                             counted(static_cast<int64_t>(found.test.size()), "image")),
                 split ? "add images, or choose a larger " + share_option()
                       : ErrorText("add PNG or JPEG images to class folders of both halves"));
  }
  note_left_out(found.notices, left_out.other_files, "file",
                "left out by name, which is none of a PNG or JPEG");
  note_left_out(found.notices, left_out.outside, "image", "left out, which lie in no class folder");
  note_only_class(found.notices, train);
  if (!found.test.empty()) note_untested(found.notices, train, test);
  note_shared(found.notices, train, test);
  found.unreadable = std::move(left_out.faults);
  return found;
}

}  // namespace lockstep
