#include <lockstep/app/commands/data_show_folder.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include <lockstep/app/train/plan/dataset.h>
#include <lockstep/data/images/decoded_rows.h>
#include <lockstep/data/images/for_each_row.h>
#include <lockstep/data/images/image_files.h>
#include <lockstep/data/images/normalize.h>
#include <lockstep/data/images/pixel_counts.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// "PNG colour with alpha, 16 bits".
std::string kind_of_image(const ImageInfo& info) {
  const char* colours = info.channels == 1 ? "grey" : info.channels == 4 ? "CMYK" : "colour";
  return fmt::format("{} {}{}{}", info.format, colours, info.alpha ? " with alpha" : "",
                     info.sixteen_bits ? ", 16 bits" : "");
}

// One half of a folder: for each file what its header says, or why it cannot be read.
struct LookedAt {
  ImageList files;
  std::vector<ImageInfo> infos = {};
  std::vector<std::string> faults = {};  // empty: none

  bool is_readable(size_t i) const { return faults[i].empty(); }
};

// Calls of(i) for each readable file. A DataError is the file's fault.
template <class Of>
void for_readable(LookedAt& half, int workers, const Of& of) {
  for_each_row(std::ssize(half.files), workers, [&](int64_t row) {
    const auto i = static_cast<size_t>(row);
    if (!half.is_readable(i)) return;
    try {
      of(i);
    } catch (const DataError& error) {
      half.faults[i] = error.message();
    }
  });
}

LookedAt read_headers(ImageList files, int workers) {
  LookedAt half{.files = std::move(files)};
  half.infos.resize(half.files.size());
  half.faults.resize(half.files.size());
  for_readable(half, workers, [&](size_t i) { half.infos[i] = info_of_file(half.files[i].path); });
  return half;
}

// Decodes the files, which finds damage, and counts their pixels.
PixelCounts decode_half(LookedAt& half, const DecodeOptions& options, int workers) {
  PixelCounts all(options.channels);
  std::mutex mutex;
  for_readable(half, workers, [&](size_t i) {
    const auto image = decode_file(half.files[i].path, options);
    PixelCounts own(options.channels);
    own.add(image.values, int64_t{image.height} * image.width);
    const std::scoped_lock lock(mutex);
    all.add(own);
  });
  return all;
}

void add_half(const LookedAt& half, bool train, DataSummary& summary) {
  for (size_t i = 0; i < half.files.size(); ++i) {
    if (!half.is_readable(i)) {
      summary.unreadable.push_back(half.faults[i]);
      continue;
    }
    auto& of = summary.classes[static_cast<size_t>(half.files.label(i))];
    ++(train ? of.train : of.test);
    ++(train ? summary.train_rows : summary.test_rows);
    const auto& info = half.infos[i];
    if (!summary.files) summary.files = {info.width, info.width, info.height, info.height};
    auto& files = *summary.files;
    files.least_width = std::min(files.least_width, info.width);
    files.most_width = std::max(files.most_width, info.width);
    files.least_height = std::min(files.least_height, info.height);
    files.most_height = std::max(files.most_height, info.height);
    ++files.kinds[kind_of_image(info)];
  }
}

ImageList readable(const LookedAt& half) {
  std::vector<ImageFile> files;
  for (size_t i = 0; i < half.files.size(); ++i) {
    if (half.is_readable(i)) files.push_back(half.files[i]);
  }
  return files;
}

bool are_grey(const LookedAt& half) {
  for (size_t i = 0; i < half.files.size(); ++i) {
    if (half.is_readable(i) && half.infos[i].channels != 1) return false;
  }
  return true;
}

bool are_of_one_size(const FilesSummary& files) {
  return files.least_width == files.most_width && files.least_height == files.most_height;
}

// Says what a row of a training is.
void add_tensors(const DecodeOptions& options, DataSummary& summary) {
  const auto& files = *summary.files;
  if (options.size == 0 && !are_of_one_size(files)) {
    summary.notices.emplace_back("the images have several sizes: a training needs --image-size");
    return;
  }
  const BatchSpec spec = {
      {.name = "images",
       .dtype = torch::kUInt8,
       .row_shape = {options.channels, options.size > 0 ? options.size : files.most_height,
                     options.size > 0 ? options.size : files.most_width}},
      {.name = "labels", .dtype = torch::kInt64, .role = Role::kTarget}};
  for (const auto& tensor : spec) summary.tensors.push_back(to_string(tensor));
}

// Images of one small size are shown as they are, others as squares.
plot::Raster sheet_of_files(const ImageList& files, const DataSummary& summary, int image_size) {
  constexpr int kSquare = 96;
  const auto& sizes = summary.files;
  const bool as_they_are = image_size == 0 && sizes && are_of_one_size(*sizes) &&
                           std::max(sizes->most_width, sizes->most_height) <= ContactSheet::kMostPixels;
  const int square = image_size > 0 && image_size <= ContactSheet::kMostPixels ? image_size : kSquare;
  ContactSheet sheet(std::ssize(summary.classes), as_they_are ? sizes->most_height : square,
                     as_they_are ? sizes->most_width : square);
  for (size_t i = 0; i < files.size(); ++i) {
    if (!sheet.wants(files.label(i))) continue;
    const auto file = files[i];
    sheet.add(file.label, decode_file(file.path, {.channels = 3, .size = as_they_are ? 0 : square}).values);
  }
  return sheet.raster();
}

}  // namespace

ShownFolder look_at_folder(const std::string& path, const DataFlags& flags, bool sheet) {
  auto folder = find_image_folder(
      path, {.test_share = flags.test_share.value_or(0), .skip_unreadable = true, .only_notice = true});
  const auto workers = flags.workers.value_or(static_cast<int>(allowed_cores().size()));
  auto train = read_headers(std::move(folder.train), workers);
  auto test = read_headers(std::move(folder.test), workers);
  const DecodeOptions options{.channels = are_grey(train) && are_grey(test) ? 1 : 3,
                              .size = static_cast<int>(flags.image_size.value_or(0))};
  const auto counts = decode_half(train, options, workers);
  decode_half(test, options, workers);

  ShownFolder shown{.summary = {.name = name_of_folder(path),
                                .origin = path,
                                .kind = "image folder",
                                .row_noun = "image",
                                .digest = folder.digest,
                                .notices = std::move(folder.notices),
                                .unreadable = std::move(folder.unreadable)}};
  auto& summary = shown.summary;
  if (folder.class_names.empty()) summary.no_classes = "there is no class folder";
  for (auto& name : folder.class_names) summary.classes.push_back({std::move(name)});
  add_half(train, /*train=*/true, summary);
  add_half(test, /*train=*/false, summary);
  folder.train = readable(train);
  folder.test = readable(test);
  if (summary.files) add_tensors(options, summary);
  if (summary.train_rows > 0) {
    auto [mean, deviation] = moments_of(counts);
    summary.mean = std::move(mean);
    summary.deviation = std::move(deviation);
  }
  if (auto same = same_in_train_and_test(folder); !same.empty()) summary.notices.push_back(std::move(same));
  if (sheet) shown.sheet = sheet_of_files(folder.train, summary, options.size);
  return shown;
}

}  // namespace lockstep
