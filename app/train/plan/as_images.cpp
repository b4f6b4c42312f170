// A data set as models see it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/train/plan/dataset.h>
#include <lockstep/app/train/plan/labels.h>
#include <lockstep/models/program.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int64_t kMostClasses = 1'000'000;  // of a model whose last layer has a row for each

bool is_image(const TensorSpec& tensor) { return tensor.row_shape.size() == 3; }

// Null unless there is exactly one.
const TensorSpec* only_image_of_bytes(const BatchSpec& spec) {
  const auto is = [](const TensorSpec& tensor) {
    return tensor.role == Role::kInput && tensor.dtype == torch::kUInt8 && is_image(tensor);
  };
  const auto first = std::ranges::find_if(spec, is);
  return std::ranges::count_if(spec, is) == 1 ? &*first : nullptr;
}

// The program's input that gets this tensor of the data; null: there is none.
const Program::Tensor* input_for(const Program& program, const BatchSpec& spec, const TensorSpec& tensor) {
  const auto& inputs = program.inputs();
  const auto named = std::ranges::find(inputs, tensor.name, &Program::Tensor::name);
  if (named != inputs.end()) return &*named;
  const bool alone = inputs.size() == 1 && std::ranges::count(spec, Role::kInput, &TensorSpec::role) == 1;
  return alone ? &inputs.front() : nullptr;
}

// How rows that no model takes become images, or get labels.
std::string hint_for(const TrainingData& data) {
  const auto& input = data.spec.front();
  const auto& shape = input.row_shape;
  const auto inputs = std::ranges::count(data.spec, Role::kInput, &TensorSpec::role);
  if (std::ranges::count(data.spec, Role::kTarget, &TensorSpec::role) == 0) {
    return "the tensors train.y and test.y are the labels";
  }
  if (inputs != 1) return "leave the other inputs out";
  if (shape.size() == 2) {
    return fmt::format("give images their dimension of channels: {}.unsqueeze(1)", input.name);
  }
  if (shape.size() == 1) {
    const auto side = std::llround(std::sqrt(static_cast<double>(shape[0])));
    const auto sizes = side * side == shape[0] ? fmt::format("1, {}, {}", side, side)
                                               : std::string("channels, height, width");
    return fmt::format("save images as images: {}.view(-1, {})", input.name, sizes);
  }
  if (shape.size() != 3) return "rows of images have three dimensions";
  if (!torch::isFloatingType(input.dtype) && input.dtype != torch::kUInt8) {
    return fmt::format("save pixels of 0 to 255 as uint8, {}.to(torch.uint8), and other numbers as float32",
                       input.name);
  }
  return label_hint(data.spec.back());
}

}  // namespace

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

std::optional<std::string> image_input_of(const TrainingData& data) {
  const auto* const image = only_image_of_bytes(data.spec);
  return image ? std::optional(image->name) : std::nullopt;
}

TrainingData as_images(TrainingData data, const std::string& model, const Normalization& normalization) {
  const auto inputs = std::ranges::count(data.spec, Role::kInput, &TensorSpec::role);
  const auto image = std::ranges::find(data.spec, Role::kInput, &TensorSpec::role);
  const bool fits = inputs == 1 && is_image(*image) &&
                    (torch::isFloatingType(image->dtype) || image->dtype == torch::kUInt8);
  if (!fits || !data.classes) {
    std::vector<std::string> found;
    for (const auto& tensor : data.spec) found.push_back(to_string(tensor));
    throw DataError(fmt::format("{} takes one input [n, channels, height, width] of floats or uint8 and one "
                                "target [n] of classes, {} has {}{}",
                                model, data.name, fmt::join(found, ", "), fits ? ": " + data.no_classes : ""),
                    hint_for(data) + "; an exported program takes any tensors");
  }
  if (*data.classes > kMostClasses) {
    throw DataError(fmt::format("{} has labels up to {}, {} takes {} classes at most", data.name,
                                with_commas(*data.classes - 1), model, with_commas(kMostClasses)),
                    "number the classes from 0 on, without gaps");
  }
  const auto name = image->name;
  return normalized(std::move(data), normalization, name);
}

TrainingData as_inputs(TrainingData data, const Program& program, const Normalization& normalization) {
  const auto* const image = only_image_of_bytes(data.spec);
  const auto* const input = image ? input_for(program, data.spec, *image) : nullptr;
  if (!input || !torch::isFloatingType(input->dtype)) return data;
  const auto name = image->name;
  return normalized(std::move(data), normalization, name);
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
