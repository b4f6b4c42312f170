#include <lockstep/app/train/plan/dataset.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <lockstep/app/machine/need_memory.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/data/idx_folder.h>
#include <lockstep/data/tensor_data.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr int64_t kMostClasses = 1'000'000;  // of a model whose last layer has a row for each

// Returns `limits` for this many rows. Throws UsageError if one is above them.
DataLimits checked(const DataLimits& limits, int64_t train_rows, int64_t test_rows, std::string_view noun,
                   const std::string& origin) {
  const auto check = [&](std::optional<int64_t> limit, int64_t rows, const char* flag, const char* kind) {
    if (limit.value_or(0) <= rows) return;
    throw UsageError(fmt::format("--limit-{} {} is more than the {} {} {}s of {}", flag, *limit,
                                 with_commas(rows), kind, noun, origin),
                     "leave it out to use all of them");
  };
  check(limits.train, train_rows, "train", "training");
  check(limits.test, test_rows, "test", "test");
  return {limits.train.value_or(train_rows), limits.test.value_or(test_rows)};
}

// load_idx_folder(), with the flags in its hints.
Dataset load_folder(const std::string& folder) {
  try {
    return load_idx_folder(folder);
  } catch (const DataError& error) {
    std::error_code ignored;
    const bool file = std::filesystem::is_regular_file(folder, ignored);
    throw DataError(
        error.message_text(),
        error.hint_text() + fmt::format("; --data DIR names a folder, --data {} needs no files{}",
                                        fmt::join(known_data_names(), " or "),
                                        file ? ", a file of tensors ends with .safetensors" : ""));
  }
}

LoadedData load_images(const std::string& folder, const DataLimits& limits) {
  auto images = load_folder(folder);
  const auto all_test_rows = images.test.size();
  const auto used = checked(limits, images.train.size(), all_test_rows, "image", folder);
  if (limits.train) images.train = first_rows(images.train, *used.train);
  if (limits.test) images.test = first_rows(images.test, *used.test);
  return {.set = as_training_data(images), .origin = folder, .all_test_rows = all_test_rows};
}

LoadedData load_file(const std::string& file, const DataLimits& limits,
                     std::span<const std::string> targets) {
  auto data = load_tensor_data(file, targets, [&](int64_t bytes) {
    need_host_memory(bytes, fmt::format("holding {}", in_quotes(file)), "file: save fewer rows");
  });
  const auto all_test_rows = data.test.rows();
  const auto used = checked(limits, data.train.rows(), all_test_rows, "row", file);
  data.train = data.train.narrow(0, *used.train);
  data.test = data.test.narrow(0, *used.test);
  return {.set = as_training_data(data), .origin = file, .all_test_rows = all_test_rows};
}

LoadedData load_set(const std::string& folder, uint64_t seed, const DataLimits& limits,
                    std::span<const std::string> targets) {
  if (const auto* known = find_known_data(folder)) {
    const auto test_rows = limits.test.value_or(known->test_rows);
    return {.set = known->make(seed, limits.train.value_or(known->train_rows), test_rows),
            .origin = fmt::format("made from seed {}", seed),
            .all_test_rows = std::max(test_rows, known->test_rows)};
  }
  return is_tensor_file(folder) ? load_file(folder, limits, targets) : load_images(folder, limits);
}

}  // namespace

std::string LoadedData::test_count() const {
  const auto rows = with_commas(set.test.rows);
  return test_limited() ? fmt::format("the first {} of {}", rows, with_commas(all_test_rows)) : rows;
}

LoadedData load_data(const std::optional<std::string>& data, uint64_t seed, const DataLimits& limits,
                     std::span<const std::string> targets) {
  auto loaded = load_set(data_folder(data), seed, limits, targets);
  loaded.train_hash = loaded.set.train.hash_of_first(loaded.set.train.rows);
  loaded.test_hash = loaded.set.test.hash_of_first(loaded.set.test.rows);
  return loaded;
}

std::string speed_unit(const TrainingData& data) {
  return data.row_noun == "image" ? "img/s" : data.row_noun + "s/s";
}

std::optional<NetworkFacts> facts_of(const TrainingData& data) {
  constexpr int64_t kMostClassNames = 100'000;
  const auto input = std::ranges::find(data.spec, Role::kInput, &TensorSpec::role);
  if (std::ranges::count(data.spec, Role::kInput, &TensorSpec::role) != 1) return std::nullopt;
  if (std::ranges::any_of(input->row_shape, [](int64_t size) { return size < 0; })) return std::nullopt;
  if (!data.classes || *data.classes > kMostClassNames) return std::nullopt;
  NetworkFacts facts{.input = input->name,
                     .row_shape = input->row_shape,
                     .bytes = input->dtype == torch::kUInt8,
                     .classes = data.class_names};
  facts.classes.resize(std::min(facts.classes.size(), static_cast<size_t>(*data.classes)));
  for (auto next = std::ssize(facts.classes); next < *data.classes; ++next) {
    facts.classes.push_back(std::to_string(next));
  }
  return facts;
}

TrainingData as_images(TrainingData data, const std::string& model) {
  const auto inputs = std::ranges::count(data.spec, Role::kInput, &TensorSpec::role);
  const auto image = std::ranges::find(data.spec, Role::kInput, &TensorSpec::role);
  const bool fits = inputs == 1 && image->row_shape.size() == 3 &&
                    (torch::isFloatingType(image->dtype) || image->dtype == torch::kUInt8);
  if (!fits || !data.classes) {
    std::vector<std::string> found;
    for (const auto& tensor : data.spec) found.push_back(to_string(tensor));
    throw DataError(fmt::format("{} takes one input [n, channels, height, width] of floats or uint8 and one "
                                "target [n] of classes, {} has {}{}",
                                model, data.name, fmt::join(found, ", "), fits ? ": " + data.no_classes : ""),
                    "an exported program takes any tensors");
  }
  if (*data.classes > kMostClasses) {
    throw DataError(fmt::format("{} has labels up to {}, {} takes {} classes at most", data.name,
                                with_commas(*data.classes - 1), model, with_commas(kMostClasses)),
                    "number the classes from 0 on, without gaps");
  }
  return with_pixels_as_floats(std::move(data), image->name);
}

ModelSpec model_spec(const std::string& model, const TrainingData& data) {
  const auto& shape = data.spec.at(0).row_shape;  // inputs come first
  return {.name = model,
          .channels = shape.at(0),
          .classes = class_count(data),
          .initialization = {},
          .height = shape.at(1),
          .width = shape.at(2)};
}

}  // namespace lockstep
