#include <lockstep/models/factory.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include <lockstep/models/lenet.h>
#include <lockstep/models/model_costs.h>
#include <lockstep/models/model_layer.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/support/classification.h>
#include <lockstep/support/error.h>

namespace lockstep {

namespace {

struct KnownModel {
  const char* name;
  ModelFactory (*make_factory)(const ModelSpec& spec);
  int64_t (*activations_per_row)(const ModelSpec& spec, torch::DeviceType device);
  int64_t (*floats_per_row)(const ModelSpec& spec, torch::DeviceType device);
  int64_t (*working_bytes)(const ModelSpec& spec, torch::DeviceType device, int64_t threads);
  std::vector<ModelLayer> (*layers)(const ModelSpec& spec);
  int64_t (*training_flops_per_row)();
};

// LeNet has eight tensors of fixed size and one initialization.
ModelFactory lenet_factory(const ModelSpec& spec) {
  if (spec.channels != 1 || spec.classes != 10) {
    throw DataError(
        fmt::format("the data has {} channels and {} classes, lenet takes 1 channel and 10 classes",
                    spec.channels, spec.classes),
        "choose resnet18, which fits itself to the data");
  }
  if (!torch::isFloatingType(spec.dtype)) {
    throw UsageError(fmt::format("lenet of {} cannot be built, its weights need a floating point type",
                                 torch::toString(spec.dtype)));
  }
  constexpr auto kOwn = Initialization::kNormalZeroBias;
  if (spec.initialization.value_or(kOwn) != kOwn) {
    throw UsageError(fmt::format("lenet cannot start from {}, it always starts from {}",
                                 initialization_name(*spec.initialization), initialization_name(kOwn)),
                     "leave the initialisation to the model, or choose resnet18");
  }
  return model_factory<LeNetImpl>(spec.seed, spec.dtype, spec.kernels);
}

std::vector<ModelLayer> lenet_layers(const ModelSpec& spec) {
  return layers_of(*std::make_shared<LeNetImpl>(spec.seed, spec.dtype, spec.kernels));
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
  return model_factory<ResNet18Impl>(options);
}

std::vector<ModelLayer> resnet18_layers(const ModelSpec& spec) {
  return layers_of(ResNet18Impl(resnet18_options(spec)));
}

bool lenet_by_lockstep(const ModelSpec& spec, torch::DeviceType device) {
  return lenet_has_lockstep_kernels(spec.kernels, spec.dtype, device);
}

int64_t lenet_activations(const ModelSpec& spec, torch::DeviceType device) {
  return lenet_activations_per_row(lenet_by_lockstep(spec, device));
}

constexpr std::array kModels = {
    KnownModel{.name = "lenet",
               .make_factory = lenet_factory,
               .activations_per_row = lenet_activations,
               .floats_per_row =
                   [](const auto& spec, auto device) {
                     return lenet_by_lockstep(spec, device) ? lenet_activations(spec, device) : 0;
                   },
               .working_bytes =
                   [](const auto& spec, auto device, auto threads) {
                     return lenet_by_lockstep(spec, device) ? lenet_working_bytes(threads) : 0;
                   },
               .layers = lenet_layers,
               .training_flops_per_row = lenet_training_flops_per_row},
    KnownModel{
        .name = "resnet18",
        .make_factory = resnet18_factory,
        .activations_per_row = [](const auto&, auto) { return resnet18_activations_per_row(); },
        .floats_per_row = [](const auto& spec,
                             auto device) { return resnet18_floats_per_row(resnet18_options(spec), device); },
        .working_bytes =
            [](const auto& spec, auto device, auto threads) {
              return resnet18_working_bytes(resnet18_options(spec), device, threads);
            },
        .layers = resnet18_layers,
        .training_flops_per_row = [] { return resnet18_training_flops_per_row(); }},
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

int64_t activations_per_row(const ModelSpec& spec, torch::DeviceType device) {
  return find_model(spec.name).activations_per_row(spec, device);
}

int64_t floats_per_row(const ModelSpec& spec, torch::DeviceType device) {
  return find_model(spec.name).floats_per_row(spec, device);
}

int64_t working_bytes(const ModelSpec& spec, torch::DeviceType device, int64_t threads) {
  return find_model(spec.name).working_bytes(spec, device, threads);
}

bool stays_in_fp32(const ModelSpec& spec, torch::DeviceType device) {
  return floats_per_row(spec, device) == activations_per_row(spec, device);
}

std::vector<ModelLayer> layers_of(const ModelSpec& spec) { return find_model(spec.name).layers(spec); }

int64_t training_flops_per_row(const std::string& name) { return find_model(name).training_flops_per_row(); }

}  // namespace lockstep
