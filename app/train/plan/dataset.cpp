#include <lockstep/app/train/plan/dataset.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include <lockstep/app/machine/need_memory.h>
#include <lockstep/app/train/plan/image_folder.h>
#include <lockstep/data/cifar_folder.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/data/data_kind.h>
#include <lockstep/data/formats/class_names.h>
#include <lockstep/data/idx_folder.h>
#include <lockstep/data/images/resized_images.h>
#include <lockstep/data/synthetic.h>
#include <lockstep/data/tensor_data.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

// Throws UsageError for a flag that other data have.
void check_flags(const DataFlags& flags, std::string_view kind) {
  enum class Of { kImages, kFolders, kSynthetic };
  struct Flag {
    bool given;
    const char* what;
    Of of;
  };
  const bool folder = kind == to_string(DataKind::kImageFolder), synthetic = kind == "synthetic";
  const bool images = !synthetic && kind != to_string(DataKind::kTensorFile);
  const Flag all[] = {
      {flags.image_size.has_value(), "--image-size is the size that images of files are resized to",
       Of::kImages},
      {flags.test_share.has_value(), "--test-share splits a folder of images that has no test images",
       Of::kFolders},
      {flags.skip_unreadable, "--skip-unreadable leaves image files out", Of::kFolders},
      {flags.data_memory.has_value(), "--data-memory is for decoded image files", Of::kFolders},
      {flags.workers.has_value(), "--workers decode image files", Of::kFolders},
      {flags.synthetic_shape.has_value(), "--synthetic-shape is of --data synthetic", Of::kSynthetic},
  };
  for (const auto& [given, what, of] : all) {
    if (!given || (of == Of::kImages ? images : of == Of::kFolders ? folder : synthetic)) continue;
    throw UsageError(fmt::format("{}, and {} is {}", what, data_folder(flags.path),
                                 synthetic ? std::string("made from a seed") : fmt::format("{} data", kind)),
                     "leave it out");
  }
}

LoadedData load_images(Dataset images, const std::string& folder, const DataFlags& flags) {
  const auto all_test_rows = images.test.size();
  const auto [train, test] = used_rows(flags, images.train.size(), all_test_rows, "image");
  if (flags.limit_train) images.train = first_rows(images.train, train);
  if (flags.limit_test) images.test = first_rows(images.test, test);
  if (flags.image_size) {
    for (auto* set : {&images.train, &images.test}) {
      *set = resized_images(*set, static_cast<int>(*flags.image_size), decoding_threads(flags));
    }
  }
  return {.set = as_training_data(images),
          .origin = folder,
          .all_test_rows = all_test_rows,
          .digest = images.digest,
          .notices = images.notices,
          .same_rows = [images] { return same_in_train_and_test(images); }};
}

// About the labels of all rows. Some of them may well lack a class.
std::vector<std::string> class_notices_of(const TensorData& data, const DataFlags& flags) {
  constexpr int64_t kMostJudged = 100'000;
  if (!data.classes || *data.classes > kMostJudged || flags.limit_train || flags.limit_test) return {};
  const auto count = [&](const Batch& rows) {
    const auto counts = rows.target().to(torch::kInt64).bincount(/*weights=*/{}, *data.classes);
    const auto* const first = counts.const_data_ptr<int64_t>();
    return std::vector<int64_t>(first, first + counts.numel());
  };
  return label_notices(count(data.train), count(data.test), numbered_classes(*data.classes), "row");
}

LoadedData load_file(const std::string& file, const DataFlags& flags, std::span<const std::string> targets) {
  auto data = load_tensor_data(file, targets, [&](int64_t bytes) {
    need_host_memory(bytes, fmt::format("holding {}", in_quotes(file)), "file: save fewer rows");
  });
  const auto all_test_rows = data.test.rows();
  const auto [train, test] = used_rows(flags, data.train.rows(), all_test_rows, "row");
  LoadedData loaded{
      .origin = file, .all_test_rows = all_test_rows, .class_notices = class_notices_of(data, flags)};
  loaded.set = as_training_data(first_rows(std::move(data), train, test));
  return loaded;
}

// A data set that needs no files.
LoadedData make_data(const KnownData& known, uint64_t seed, const DataFlags& flags) {
  check_flags(flags, known.name);
  const auto train_rows = flags.limit_train.value_or(known.train_rows);
  const auto test_rows = flags.limit_test.value_or(known.test_rows);
  LoadedData loaded{.origin = fmt::format("made from seed {}", seed),
                    .all_test_rows = std::max(test_rows, known.test_rows),
                    .kind = std::string(known.name)};
  if (const auto& shape = flags.synthetic_shape) {
    loaded.set = as_training_data(make_synthetic(
        seed, train_rows, test_rows, {shape->channels, shape->height, shape->width}, shape->classes));
  } else {
    loaded.set = known.make(seed, train_rows, test_rows);
  }
  return loaded;
}

// Returns what it returns. Its errors say what else --data may name.
template <class Find>
auto with_other_data(const Find& find) {
  try {
    return find();
  } catch (const DataError& error) {
    throw DataError(error.message_text(),
                    error.hint_text() + fmt::format("; --data DIR names a folder, --data {} needs no files",
                                                    fmt::join(known_data_names(), " or ")));
  }
}

LoadedData read_data(const std::string& path, const DataFlags& flags, std::span<const std::string> targets,
                     int processes_on_host) {
  const auto kind = with_other_data([&] { return kind_of(path); });
  check_flags(flags, to_string(kind));
  const auto load = [&] {
    if (kind == DataKind::kTensorFile) return load_file(path, flags, targets);
    if (kind == DataKind::kImageFolder) return load_image_folder(path, flags, processes_on_host);
    auto images =
        with_other_data([&] { return kind == DataKind::kIdx ? load_idx_folder(path) : load_cifar(path); });
    return load_images(std::move(images), path, flags);
  };
  auto loaded = load();
  loaded.kind = to_string(kind);
  return loaded;
}

}  // namespace

LoadedData load_data(const DataFlags& flags, uint64_t seed, std::span<const std::string> targets,
                     int processes_on_host) {
  const auto path = data_folder(flags.path);
  const auto* const known = find_known_data(path);
  auto loaded = known ? make_data(*known, seed, flags) : read_data(path, flags, targets, processes_on_host);
  loaded.flags = flags;
  loaded.train_hash = loaded.set.train.hash_of_first(loaded.set.train.rows);
  loaded.test_hash = loaded.set.test.hash_of_first(loaded.set.test.rows);
  return loaded;
}

}  // namespace lockstep
