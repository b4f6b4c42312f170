#include <lockstep/data/images/augmentation.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include <lockstep/support/error.h>
#include <lockstep/support/parse_number.h>
#include <lockstep/support/split_text.h>
#include <lockstep/support/suggest.h>

namespace lockstep {
namespace {

constexpr int kMostPixels = 32767;
constexpr auto kForms = "augmentations are crop:PIXELS, flip, cutout:PIXELS and resized-crop:LEAST_AREA";

[[noreturn]] void throw_bad_value(std::string_view name, std::string_view value, const std::string& wanted) {
  throw UsageError(value.empty() ? fmt::format("augmentation {} needs {}", name, wanted)
                                 : fmt::format("augmentation {} has '{}', not {}", name, value, wanted),
                   kForms);
}

int pixels(std::string_view name, std::string_view value) {
  const auto count = parse_count<int>(value);
  if (!count || *count < 1 || *count > kMostPixels) {
    throw_bad_value(name, value, fmt::format("a number of pixels, 1 to {}", kMostPixels));
  }
  return *count;
}

double least_area(std::string_view value) {
  const auto area = parse_number<double>(value);
  if (!area || !(*area > 0 && *area <= 1)) {
    throw_bad_value("resized-crop", value, "a share of the area, above 0 and at most 1");
  }
  return *area;
}

// One step of the text: reads its value, which is empty without a colon.
struct Step {
  std::string_view name;
  bool (*is_set)(const Augmentation& in);
  void (*set)(Augmentation& in, std::string_view value, bool has_value);
};

constexpr std::array kSteps = {
    Step{"resized-crop", [](const Augmentation& in) { return in.resized_crop.has_value(); },
         [](Augmentation& in, std::string_view value, bool has_value) {
           in.resized_crop = has_value ? ResizedCrop{least_area(value)} : ResizedCrop{};
         }},
    Step{"crop", [](const Augmentation& in) { return in.crop > 0; },
         [](Augmentation& in, std::string_view value, bool) { in.crop = pixels("crop", value); }},
    Step{"flip", [](const Augmentation& in) { return in.flip; },
         [](Augmentation& in, std::string_view value, bool has_value) {
           if (has_value) throw UsageError(fmt::format("augmentation flip takes no '{}'", value), kForms);
           in.flip = true;
         }},
    Step{"cutout", [](const Augmentation& in) { return in.cutout > 0; },
         [](Augmentation& in, std::string_view value, bool) { in.cutout = pixels("cutout", value); }},
};

[[noreturn]] void throw_unknown(std::string_view name) {
  std::vector<std::string> names = {"none"};
  for (const auto& step : kSteps) names.emplace_back(step.name);
  if (name == names.front()) throw UsageError("augmentation none stands beside others", "leave it out");
  const auto meant = nearest(name, names);
  throw UsageError(fmt::format("unknown augmentation '{}'", name),
                   meant ? fmt::format("did you mean '{}'? {}", *meant, kForms) : kForms);
}

void refuse_two_crops(const Augmentation& augmentation) {
  if (augmentation.crop == 0 || !augmentation.resized_crop) return;
  throw UsageError("augmentations crop and resized-crop both choose a part of the image", "leave one out");
}

}  // namespace

Augmentation parse_augmentation(std::string_view text) {
  Augmentation result;
  if (text == "none") return result;
  for (const auto part : split_text(text, ',')) {
    if (part.empty())
      throw UsageError(fmt::format("'{}' names no augmentation where one is expected", text), kForms);
    const auto colon = part.find(':');
    const auto name = part.substr(0, colon);
    const bool has_value = colon != part.npos;
    const auto* const step = std::ranges::find(kSteps, name, &Step::name);
    if (step == kSteps.end()) throw_unknown(name);
    if (step->is_set(result)) throw UsageError(fmt::format("augmentation {} comes twice", name), kForms);
    step->set(result, has_value ? part.substr(colon + 1) : "", has_value);
  }
  refuse_two_crops(result);
  return result;
}

std::string to_string(const Augmentation& augmentation) {
  std::vector<std::string> parts;
  if (augmentation.resized_crop) {
    parts.push_back(fmt::format("resized-crop:{}", augmentation.resized_crop->least_area));
  }
  if (augmentation.crop > 0) parts.push_back(fmt::format("crop:{}", augmentation.crop));
  if (augmentation.flip) parts.emplace_back("flip");
  if (augmentation.cutout > 0) parts.push_back(fmt::format("cutout:{}", augmentation.cutout));
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ","));
}

void check(const Augmentation& augmentation) {
  if (augmentation.crop != 0) pixels("crop", fmt::format("{}", augmentation.crop));
  if (augmentation.cutout != 0) pixels("cutout", fmt::format("{}", augmentation.cutout));
  if (augmentation.resized_crop) least_area(fmt::format("{}", augmentation.resized_crop->least_area));
  refuse_two_crops(augmentation);
}

}  // namespace lockstep
