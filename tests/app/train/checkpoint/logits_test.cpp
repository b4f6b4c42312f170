// The logits of a checkpoint's model, for a comparison with Python's. Run by python_goes_on.sh.
#include <lockstep/tests/catch.h>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <lockstep/data/checkpoint.h>
#include <lockstep/models/factory.h>
#include <lockstep/models/lenet.h>
#include <lockstep/models/load_weights.h>
#include <lockstep/models/resnet18.h>

using namespace lockstep;

namespace {

std::string given(const char* variable) {
  const char* value = std::getenv(variable);
  REQUIRE(value != nullptr);
  return value;
}

torch::Tensor logits_of(const TensorFile& model, torch::ScalarType dtype, const torch::Tensor& X) {
  const torch::NoGradGuard no_grad;
  const auto module = make_model_factory({.name = model.metadata.at("model"), .dtype = dtype})().module;
  load_weights_into(*module, model.tensors);
  module->eval();
  if (auto* lenet = module->as<LeNetImpl>()) return lenet->forward(X.to(dtype));
  return module->as<ResNet18Impl>()->forward(X.to(dtype)).contiguous();
}

}  // namespace

TEST_CASE("logits for Python", "[.]") {
  const auto model = read_checkpoint(given("LOCKSTEP_TEST_CHECKPOINT")).tensors.at("model.safetensors");
  const auto X = load_safetensors(given("LOCKSTEP_TEST_IMAGES")).tensors.at(0).tensor;
  TensorFile logits;
  logits.tensors = {{"float", logits_of(model, torch::kFloat32, X)},
                    {"double", logits_of(model, torch::kFloat64, X)}};
  save_safetensors(given("LOCKSTEP_TEST_LOGITS"), logits, /*overwrite=*/true);
}
