// The settings of images: how they are made, read and decoded, and what becomes of their pixels.
#include <CLI/CLI.hpp>

#include <functional>
#include <ranges>
#include <utility>

#include <lockstep/app/cli/byte_size.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/files/json.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int64_t kMostImageSize = 4096;
constexpr int64_t kMostWorkers = 1024;

// Accepts what `parse` does not throw a UsageError for.
CLI::Validator parsed_by(std::function<void(const std::string&)> parse) {
  return CLI::Validator(
      [parse = std::move(parse)](const std::string& text) -> std::string {
        try {
          parse(text);
          return {};
        } catch (const UsageError& error) {
          return error.hint().empty() ? error.message() : error.message() + "\n" + error.hint() + ";";
        }
      },
      "");
}

// A flag whose value is parsed by a function that throws UsageError.
template <class Value, class Parse>
CLI::Option* add_parsed(CLI::App& command, const std::string& flag, Value& value, Parse parse,
                        const std::string& help) {
  const auto set = [&value, parse](const CLI::results_t& words) {
    value = parse(words.front());
    return true;
  };
  return command.add_option(flag, set, help)->check(parsed_by([parse](const std::string& text) {
    parse(text);
  }));
}

CLI::Option* add_test_share(CLI::App& command, const std::string& flag, DataFlags& flags) {
  return command
      .add_option(flag, flags.test_share,
                  "Of a folder of images without test images: the share that is for testing, such as 0.1, "
                  "chosen by a hash of the names")
      ->check(open_fraction());
}

CLI::Option* add_image_size(CLI::App& command, const std::string& flag, DataFlags& flags) {
  return command
      .add_option(
          flag, flags.image_size,
          "Resize images of folders, IDX and CIFAR files so that the shorter side has N pixels, and take "
          "the central square (default: as they are, all of one size)")
      ->check(positive_int(kMostImageSize));
}

CLI::Option* add_synthetic_shape(CLI::App& command, const std::string& flag, DataFlags& flags) {
  return add_parsed(
             command, flag, flags.synthetic_shape, parse_synthetic_shape,
             "Channels, height and width of synthetic images, and their classes: 3x32x32:100 (default: "
             "1x28x28:10)")
      ->type_name("CxHxW[:CLASSES]");
}

CLI::Option* add_data_memory(CLI::App& command, const std::string& flag, DataFlags& flags) {
  const auto set = [&flags](const CLI::results_t& words) {
    flags.data_memory = parse_bytes(words.front());
    return true;
  };
  return command
      .add_option(flag, set,
                  "Images of files that take more memory than this, such as 4G, are decoded while training "
                  "instead of once (default: half of what is free, shared out among the host's processes)")
      ->check(byte_size(1));
}

CLI::Option* add_workers(CLI::App& command, const std::string& flag, DataFlags& flags) {
  return command
      .add_option(flag, flags.workers, "Threads that decode images of files (default: the cores, at most 8)")
      ->check(positive_int(kMostWorkers));
}

CLI::Option* add_skip_unreadable(CLI::App& command, const std::string& flag, DataFlags& flags) {
  return command.add_flag(
      flag, flags.skip_unreadable,
      "Leave image files out that cannot be read, are empty, damaged or have another format");
}

// The same as a setting's.
template <CLI::Option* (*kAdd)(CLI::App&, const std::string&, DataFlags&)>
CLI::Option* of_train(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return kAdd(command, flag, flags.data);
}

CLI::Option* add_augment(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_parsed(command, flag, flags.augment, parse_augmentation,
                    "Change training images at random: crop:N, flip, cutout:N and resized-crop[:AREA], with "
                    "commas between them (default: none)")
      ->type_name("LIST");
}

CLI::Option* add_normalize(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_parsed(command, flag, flags.normalize, parse_normalize,
                    "Subtract a mean from pixels / 255 and divide by a deviation: of each channel of the "
                    "training images (auto), or these (default: none)")
      ->type_name("auto|none|M:D");
}

Json share_of(const DataFlags& flags) { return or_null(flags.test_share); }
Json size_of(const DataFlags& flags) { return or_null(flags.image_size); }
Json shape_of(const DataFlags& flags) {
  return flags.synthetic_shape ? Json(to_string(*flags.synthetic_shape)) : Json();
}
Json memory_of(const DataFlags& flags) {
  return flags.data_memory ? Json(bytes_text(*flags.data_memory)) : Json();
}
Json workers_of(const DataFlags& flags) { return or_null(flags.workers); }
Json skips_of(const DataFlags& flags) { return flags.skip_unreadable ? Json(true) : Json(); }

// The value in plans, and in configurations.
template <Json (*kValue)(const DataFlags&)>
Json planned_by(const TrainPlan& plan) {
  return kValue(plan.data.flags);
}
template <Json (*kValue)(const DataFlags&)>
Json configured_by(const TrainFlags& flags, const TrainPlan&) {
  return kValue(flags.data);
}

Json augment_text(const Augmentation& augmentation) {
  return augmentation.any() ? Json(to_string(augmentation)) : Json();
}

Json normalize_value(const Normalization& normalization) {
  return normalization.mean.empty() ? Json() : Json(normalize_text(normalization));
}

Json normalize_flag(const TrainFlags& flags) {
  return flags.normalize.any() ? Json(to_string(flags.normalize)) : Json();
}

Json asked_shape(const TrainFlags& flags, const Json&) { return shape_of(flags.data); }
Json asked_augment(const TrainFlags& flags, const Json&) { return augment_text(flags.augment); }
Json asked_normalize(const TrainFlags& flags, const Json& run) {
  return flags.normalize.automatic ? run.at("normalize") : normalize_flag(flags);
}

// The numbers, which a run that goes on does not measure again.
Json kept_normalize(const TrainFlags&, const TrainPlan& plan) {
  return normalize_value(plan.pixels.normalization);
}

// How many images --skip-unreadable has left out, and what is wrong with the first ones.
Json unreadable_images(const TrainPlan& plan) {
  constexpr ptrdiff_t kNamed = 10;
  const auto& faults = plan.data.unreadable;
  if (faults.empty()) return {};
  auto first = Json::array();
  for (const auto& fault : faults | std::views::take(kNamed)) first.push_back(fault);
  return {{"count", faults.size()}, {"first", first}};
}

constexpr unsigned kOfRows = kInPlan | kInBench | kInSweep | kAgreed | kInConfig;

constexpr Setting kImageSettings[] = {
    {.name = "test-share",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = of_train<add_test_share>,
     .in = kOfRows,
     .planned = planned_by<share_of>,
     .config = configured_by<share_of>,
     .on_resume = OnResume::kRefused},
    {.name = "image-size",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = of_train<add_image_size>,
     .in = kOfRows,
     .planned = planned_by<size_of>,
     .config = configured_by<size_of>,
     .on_resume = OnResume::kRefused},
    {.name = "synthetic-shape",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = of_train<add_synthetic_shape>,
     .in = kOfRows,
     .planned = planned_by<shape_of>,
     .config = configured_by<shape_of>,
     .asked = asked_shape,
     .on_resume = OnResume::kRefused},
    {.name = "skip-unreadable",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = of_train<add_skip_unreadable>,
     .in = kInConfig,
     .planned = planned_by<skips_of>,
     .config = configured_by<skips_of>},
    {.name = "data-memory",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = of_train<add_data_memory>,
     .in = kInConfig,
     .planned = planned_by<memory_of>,
     .config = configured_by<memory_of>,
     .depends_on_place = true},
    {.name = "workers",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = of_train<add_workers>,
     .in = kInConfig,
     .planned = planned_by<workers_of>,
     .config = configured_by<workers_of>,
     .depends_on_place = true},
    {.name = "augment",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = add_augment,
     .in = kOfRows,
     .planned = [](const auto& plan) { return augment_text(plan.pixels.augmentation); },
     .given = [](const auto& flags, const auto&) { return augment_text(flags.augment); },
     .config = [](const auto& flags, const auto&) { return augment_text(flags.augment); },
     .asked = asked_augment,
     .on_resume = OnResume::kRefused},
    {.name = "normalize",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = add_normalize,
     .in = kOfRows,
     .planned = [](const auto& plan) { return normalize_value(plan.pixels.normalization); },
     .given = [](const auto& flags, const auto&) { return normalize_flag(flags); },
     .config = [](const auto& flags, const auto&) { return normalize_flag(flags); },
     .kept = kept_normalize,
     .asked = asked_normalize,
     .on_resume = OnResume::kRefused},
    {.name = "normalize-rows",  // that were measured for it: not by a run that goes on
     .in = kInPlan,
     .planned = [](const auto& plan) { return or_null(plan.pixels.measured_rows); },
     .is_fact = true},
    {.name = "unreadable-images",  // by their paths: the folder may have moved
     .in = kInPlan,
     .planned = unreadable_images,
     .is_fact = true},
    {.name = "data-kind", .in = kInPlan, .planned = [](const auto& plan) -> Json { return plan.data.kind; }},
    {.name = "data-digest",
     .in = kInPlan,
     .planned = [](const auto& plan) { return plan.data.digest.empty() ? Json() : Json(plan.data.digest); }},
    {.name = "train-data-hash",  // after what explains a difference better
     .in = kInPlan | kAgreed,
     .planned = [](const auto& plan) -> Json { return plan.data.train_hash; },
     .on_resume = OnResume::kRefused},
    {.name = "train-data-times",  // a run that goes on warns of others, since copies of files may have them
     .in = kInPlan,
     .planned =
         [](const auto& plan) {
           return plan.data.train_times.empty() ? Json() : Json(plan.data.train_times);
         }},
    {.name = "test-data-hash",
     .in = kInPlan | kAgreed,
     .planned = [](const auto& plan) -> Json { return plan.data.test_hash; }},
};

}  // namespace

void add_data_flags(CLI::App& command, DataFlags& flags) {
  add_test_share(command, "--test-share", flags);
  add_image_size(command, "--image-size", flags);
  add_synthetic_shape(command, "--synthetic-shape", flags);
  add_data_memory(command, "--data-memory", flags);
  add_workers(command, "--workers", flags);
  add_skip_unreadable(command, "--skip-unreadable", flags);
}

std::span<const Setting> image_settings() { return kImageSettings; }

}  // namespace lockstep
