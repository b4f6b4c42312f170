#include <lockstep/app/train/plan/pixels.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/train_plan.h>
#include <lockstep/data/images/augment.h>
#include <lockstep/models/program.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr int64_t kMeasuredOfStream = 10'000;  // rows

std::string spec_text(const BatchSpec& spec) {
  std::vector<std::string> texts;
  for (const auto& tensor : spec) texts.push_back(to_string(tensor));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Returns the channels of the one input of images; nothing where there is none.
std::optional<int64_t> image_channels(const TrainingData& data) {
  const auto input = image_input_of(data);
  if (!input) return std::nullopt;
  return std::ranges::find(data.spec, *input, &TensorSpec::name)->row_shape.front();
}

// Throws UsageError where the flags change pixels, and there are none of bytes.
void check_has_pixels(const TrainFlags& flags, const TrainPlan& plan) {
  const auto refuse = [&](const char* flag, const char* what, const std::string& found) {
    throw UsageError(fmt::format("{} {}, and {}", flag, what, found), fmt::format("leave {} out", flag));
  };
  const auto& set = plan.data.set;
  if (!image_input_of(set)) {
    const auto found = fmt::format("{} has {}", set.name, spec_text(set.spec));
    const char* what = "changes one input of images [n, channels, height, width] of bytes";
    if (flags.augment.any()) refuse("--augment", what, found);
    if (flags.normalize.any()) refuse("--normalize", what, found);
  }
  const auto means = std::ssize(flags.normalize.given.mean);
  if (const auto channels = image_channels(set); means > 1 && channels && means != *channels) {
    throw UsageError(fmt::format("--normalize has means of {} channels, and the images of {} have {}", means,
                                 set.name, *channels),
                     "give one mean and one deviation for each channel, or one for all");
  }
  if (!plan.program || !flags.normalize.any()) return;
  if (as_inputs(set, *plan.program).spec != set.spec) return;
  refuse("--normalize", "gives a network floats",
         fmt::format("{} takes bytes as they are", in_quotes(plan.program->path().native())));
}

Normalization normalization_of(const TrainFlags& flags, TrainPlan& plan) {
  if (!flags.normalize.automatic) return flags.normalize.given;
  const auto input = image_input_of(plan.data.set).value_or("");
  const auto measured = measure(
      plan.data.set.train,
      {.sample = plan.data.streamed ? kMeasuredOfStream : 0, .seed = plan.trainer.seed, .input = input});
  plan.pixels.measured_rows = measured.rows;
  return measured.normalization;
}

// "60,000 images", or "10,000 of 60,000 images".
std::string measured_text(int64_t rows, int64_t all) {
  return rows == all ? counted(rows, "image")
                     : fmt::format("{} of {}", with_commas(rows), counted(all, "image"));
}

}  // namespace

void set_pixels(const TrainFlags& flags, TrainPlan& plan) {
  check_has_pixels(flags, plan);
  plan.pixels.augmentation = flags.augment;
  plan.pixels.normalization = normalization_of(flags, plan);
  auto& set = plan.data.set;
  if (flags.augment.any()) {
    set.train.sources =
        augmented(set.train.sources, flags.augment, plan.trainer.seed, image_input_of(set).value_or(""));
  }
  if (!plan.facts) return;
  plan.facts->image_size = plan.data.flags.image_size.value_or(0);
  plan.facts->mean = plan.pixels.normalization.mean;
  plan.facts->deviation = plan.pixels.normalization.deviation;
}

std::string pixels_text(const TrainPlan& plan) {
  const auto& [augmentation, normalization, measured] = plan.pixels;
  std::vector<std::string> parts;
  if (augmentation.any()) parts.push_back(to_string(augmentation) + " on training images");
  if (!normalization.mean.empty()) {
    const auto list = [](const std::vector<double>& numbers) {
      std::vector<std::string> texts;
      for (const double number : numbers) texts.push_back(fmt::format("{:.4g}", number));
      return fmt::format("{}", fmt::join(texts, ", "));
    };
    parts.push_back(fmt::format(
        "normalised by mean {} and deviation {}{}", list(normalization.mean), list(normalization.deviation),
        measured ? ", measured on " + measured_text(*measured, plan.data.set.train.rows) : ""));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace lockstep
