#include <lockstep/models/factory.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include <lockstep/models/costs.h>
#include <lockstep/models/lenet.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/support/error.h>
#include <lockstep/support/model_factory.h>

namespace lockstep {

namespace {

struct KnownModel {
  const char* name;
  ModelFactory (*make_factory)(const ModelSpec& spec);
  ModelCosts (*costs)(const ModelSpec& spec, torch::DeviceType device, int64_t threads);
  // Null: its layers are not timed one by one.
  std::vector<ModelLayer> (*layers)(const ModelSpec& spec);
};

OutputLoss loss_of(const ModelSpec& spec) {
  return classification(ClassificationOptions{
      .classes = spec.classes, .label_smoothing = spec.label_smoothing, .class_weights = spec.class_weights});
}

// LeNet has one initialization.
ModelFactory lenet_factory(const ModelSpec& spec) {
  if (std::min(spec.height, spec.width) < LeNetShape::kLeastSide) {
    throw DataError(fmt::format("the data has images of {} x {} pixels, lenet takes {} x {} at least",
                                spec.height, spec.width, LeNetShape::kLeastSide, LeNetShape::kLeastSide),
                    spec.width <= 4 && spec.channels >= LeNetShape::kLeastSide
                        ? "images have [n, channels, height, width]: permute(0, 3, 1, 2) makes them of [n, "
                          "height, width, channels]"
                        : "choose resnet18, which takes any size");
  }
  check_shape(shape_of_lenet(spec));  // before the first replica is built
  if (!torch::isFloatingType(spec.dtype)) {
    throw UsageError(fmt::format("lenet of {} cannot be built, its weights need a floating point type",
                                 torch::toString(spec.dtype)));
  }
  constexpr auto kOwn = Initialization::kNormalZeroBias;
  if (spec.initialization.value_or(kOwn) != kOwn) {
    throw UsageError(
        fmt::format("lenet cannot start from {}, it always starts from {}",
                    name_of(kInitializationNames, *spec.initialization), name_of(kInitializationNames, kOwn)),
        "leave the initialisation to the model, or choose resnet18");
  }
  return model_factory<LeNetImpl>(spec.seed, spec.dtype, spec.kernels, shape_of_lenet(spec))
      .loss(loss_of(spec));
}

ResNet18Options resnet18_options(const ModelSpec& spec) {
  ResNet18Options options;
  options.channels = spec.channels;
  options.classes = spec.classes;
  options.seed = spec.seed;
  options.dtype = spec.dtype;
  options.kernels = spec.kernels;
  options.initialization = spec.initialization.value_or(options.initialization);
  return options;
}

ModelFactory resnet18_factory(const ModelSpec& spec) {
  const auto options = resnet18_options(spec);
  check_options(options);  // before the first replica is built
  return model_factory<ResNet18Impl>(options).loss(loss_of(spec));
}

constexpr std::array kModels = {
    KnownModel{.name = "lenet", .make_factory = lenet_factory, .costs = lenet_costs, .layers = lenet_layers},
    KnownModel{.name = "resnet18",
               .make_factory = resnet18_factory,
               .costs =
                   [](const auto& spec, auto device, auto threads) {
                     return resnet18_costs(resnet18_options(spec), device, threads, spec.height, spec.width);
                   },
               .layers =
                   [](const auto& spec) {
                     return resnet18_layers(resnet18_options(spec), spec.height, spec.width);
                   }},
};

const KnownModel& find_model(const std::string& name) {
  for (const auto& model : kModels) {
    if (name == model.name) return model;
  }
  throw UsageError(fmt::format("no model is named '{}'", name),
                   fmt::format("known models: {}", fmt::join(model_names(), ", ")));
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& model : kModels) names.emplace_back(model.name);
  return names;
}

ModelFactory make_model_factory(const ModelSpec& spec) { return find_model(spec.name).make_factory(spec); }

std::string kernels_note(const ModelSpec& spec) {
  const bool fits = spec.name != "lenet" || shape_of_lenet(spec).has_kernels();
  if (fits || spec.kernels == Kernels::kTorch) return {};
  return "torch's kernels: lockstep's for lenet are of 1 x 28 x 28 pixels and 10 classes";
}

ModelCosts costs_of(const ModelSpec& spec, torch::DeviceType device, int64_t threads) {
  return find_model(spec.name).costs(spec, device, threads);
}

bool stays_in_fp32(const ModelSpec& spec, torch::DeviceType device) {
  const auto costs = costs_of(spec, device);
  return costs.floats == costs.activations;
}

std::vector<ModelLayer> layers_of(const ModelSpec& spec) {
  const auto layers = find_model(spec.name).layers;
  return layers ? layers(spec) : std::vector<ModelLayer>{};
}

}  // namespace lockstep
