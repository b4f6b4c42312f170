#include <lockstep/models/factory.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include <lockstep/models/lenet.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/support/classification.h>
#include <lockstep/support/error.h>

namespace lockstep {

namespace {

struct KnownModel {
  const char* name;
  ModelFactory (*make_factory)(const ModelSpec& spec);
  int64_t (*activations_per_row)();
  int64_t (*training_flops_per_row)();
};

// The chapter's LeNet is eight tensors of fixed size with one start.
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
  return model_factory<LeNetImpl>(spec.seed, spec.dtype);
}

ModelFactory resnet18_factory(const ModelSpec& spec) {
  ResNet18Options options;
  options.channels = spec.channels;
  options.classes = spec.classes;
  options.seed = spec.seed;
  options.dtype = spec.dtype;
  options.kernels = spec.kernels;
  options.initialization = spec.initialization.value_or(options.initialization);
  check_options(options);  // now, and not when the first replica is built
  return model_factory<ResNet18Impl>(options);
}

constexpr std::array kModels = {
    KnownModel{"lenet", lenet_factory, lenet_activations_per_row, lenet_training_flops_per_row},
    KnownModel{"resnet18", resnet18_factory, [] { return resnet18_activations_per_row(); },
               [] { return resnet18_training_flops_per_row(); }},
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

int64_t activations_per_row(const std::string& name) { return find_model(name).activations_per_row(); }

int64_t training_flops_per_row(const std::string& name) { return find_model(name).training_flops_per_row(); }

}  // namespace lockstep
