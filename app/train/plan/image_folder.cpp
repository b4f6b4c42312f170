#include <lockstep/app/train/plan/image_folder.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include <lockstep/app/machine/memory_usage.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/data/images/decoded_rows.h>
#include <lockstep/data/images/image_files.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int64_t kMostQueueBytes = int64_t{256} << 20;

// How the images of a folder are decoded, and where they are.
struct Decoding {
  DecodeOptions options;
  std::vector<int64_t> shape;  // channels, height, width
  int workers = 1;
  int64_t memory = 0;  // for decoded images

  int64_t bytes(size_t files) const { return shape[0] * shape[1] * shape[2] * static_cast<int64_t>(files); }
  int64_t queue_bytes() const { return std::clamp<int64_t>(memory / 2, 1, kMostQueueBytes); }
};

// Both halves make batches of one network. Later ones are compared with the first of their half.
void check_one_size(const ImageFile& train, const ImageInfo& first, const ImageFile& test) {
  const auto other = info_of_file(test.path);
  if (other.height == first.height && other.width == first.width) return;
  throw DataError(
      fmt::format("{} has {} x {} pixels, but {}, which is for training, has {} x {}", test.path.string(),
                  other.width, other.height, train.path.string(), first.width, first.height),
      "--image-size N resizes images for training and for testing to one size");
}

Decoding decoding_of(const ImageFolder& folder, const DataFlags& flags, int processes_on_host) {
  Decoding decoding;
  decoding.workers = decoding_threads(flags);
  decoding.memory = flags.data_memory.value_or(default_data_memory(available_bytes(), processes_on_host));
  auto& options = decoding.options;
  const auto grey = [&](const auto& files) { return all_grey(files, decoding.workers); };
  options.channels = flags.channels.value_or(grey(folder.train) && grey(folder.test) ? 1 : 3);
  options.size = static_cast<int>(flags.image_size.value_or(0));
  const auto first = info_of_file(folder.train.front().path);
  if (options.size == 0) check_one_size(folder.train.front(), first, folder.test.front());
  decoding.shape = {options.channels, options.size > 0 ? options.size : first.height,
                    options.size > 0 ? options.size : first.width};
  return decoding;
}

// Test images are resident, too, where they leave half of the memory to training.
DataRows rows_of_files(const ImageList& files, const Decoding& decoding, bool resident, bool train) {
  const auto streamed = [&](std::string name, bool evaluated) {
    return streamed_image_rows(files, decoding.options,
                               {.workers = decoding.workers,
                                .queue_bytes = decoding.queue_bytes(),
                                .notice = [](const std::string& text) { warn(text); },
                                .name = std::move(name),
                                .evaluated = evaluated});
  };
  auto rows = resident ? resident_image_rows(files, decoding.options, decoding.workers)
                       : streamed(train ? "the training images" : "the test images", !train);
  if (!resident && train) {
    rows.held_out = streamed("the training images, held out for validation,", /*evaluated=*/true).sources;
  }
  // Where they are does not change what they are.
  rows.hash_of_first = [files](int64_t count) { return hash_of_files(files, count); };
  return rows;
}

std::string held_text(const Decoding& decoding, const ImageFolder& folder, bool all, bool test) {
  const auto megabytes = [&](size_t files) {
    return fmt::format("{} MB", with_commas((decoding.bytes(files) + 999'999) / 1'000'000));
  };
  const auto workers = counted(decoding.workers, "worker");
  if (all) {
    return fmt::format("decoded into {} of memory by {}", megabytes(folder.train.size() + folder.test.size()),
                       workers);
  }
  return fmt::format("{} of training images streamed by {}, {} of test images {}",
                     megabytes(folder.train.size()), workers, megabytes(folder.test.size()),
                     test ? "in memory" : "streamed");
}

// Sets what streams hold in memory. Workers of training go on reading ahead while others evaluate.
void set_stream_bytes(const Decoding& decoding, const ImageFolder& folder, bool test_resident,
                      LoadedData& loaded) {
  const auto largest = [&](const ImageList& files) { return decoding_bytes(files, decoding.options); };
  const auto train = largest(folder.train), test = test_resident ? 0 : largest(folder.test);
  loaded.decoding_bytes = std::max(train, test);
  loaded.ahead_bytes = std::min(decoding.queue_bytes(), decoding.bytes(folder.train.size())) +
                       decoding.workers * (train + test);
}

// "3 unreadable images left out: A is empty; B is truncated ... and 1 more"; empty: none.
std::string unreadable_text(const std::vector<std::string>& faults) {
  constexpr size_t kShown = 3;
  if (faults.empty()) return {};
  auto text = fmt::format("{} left out: {}", counted(std::ssize(faults), "unreadable image"),
                          fmt::join(faults | std::views::take(kShown), "; "));
  return faults.size() > kShown ? text + fmt::format("; and {} more", faults.size() - kShown) : text;
}

ImageFolder found_folder(const std::string& path, const DataFlags& flags) {
  auto folder = find_image_folder(
      path, {.test_share = flags.test_share.value_or(0), .skip_unreadable = flags.skip_unreadable});
  if (!flags.skip_unreadable) return folder;
  WantedImages wanted;
  if (flags.limit_train) wanted.train = static_cast<size_t>(*flags.limit_train);
  if (flags.limit_test) wanted.test = static_cast<size_t>(*flags.limit_test);
  folder = readable_images(std::move(folder), wanted, decoding_threads(flags));
  if (auto left_out = unreadable_text(folder.unreadable); !left_out.empty()) {
    folder.notices.insert(folder.notices.begin(), std::move(left_out));
  }
  return folder;
}

}  // namespace

LoadedData load_image_folder(const std::string& path, const DataFlags& flags, int processes_on_host) {
  auto folder = found_folder(path, flags);
  const auto all_test_rows = static_cast<int64_t>(folder.test.size());
  const auto [train, test] =
      used_rows(flags, static_cast<int64_t>(folder.train.size()), all_test_rows, "image");
  folder.train = folder.train.first(static_cast<size_t>(train));
  folder.test = folder.test.first(static_cast<size_t>(test));
  const auto decoding = decoding_of(folder, flags, processes_on_host);
  const auto test_bytes = decoding.bytes(folder.test.size());
  const bool resident = decoding.bytes(folder.train.size()) + test_bytes <= decoding.memory;
  const bool test_resident = resident || test_bytes <= decoding.memory / 2;
  LoadedData loaded{.origin = path,
                    .all_test_rows = all_test_rows,
                    .train_times = hash_of_times(folder.train),
                    .digest = folder.digest,
                    .notices = folder.notices,
                    .unreadable = folder.unreadable,
                    .streamed = !resident,
                    .same_rows = [folder] { return same_in_train_and_test(folder); },
                    .held = held_text(decoding, folder, resident, test_resident)};
  if (!resident) set_stream_bytes(decoding, folder, test_resident, loaded);
  loaded.set = {.name = name_of_folder(path),
                .spec = {{.name = "images", .dtype = torch::kUInt8, .row_shape = decoding.shape},
                         {.name = "labels", .dtype = torch::kInt64, .role = Role::kTarget}},
                .classes = static_cast<int64_t>(folder.class_names.size()),
                .class_names = folder.class_names,
                .row_noun = "image",
                .train = rows_of_files(folder.train, decoding, resident, /*train=*/true),
                .test = rows_of_files(folder.test, decoding, test_resident, /*train=*/false)};
  return loaded;
}

}  // namespace lockstep
