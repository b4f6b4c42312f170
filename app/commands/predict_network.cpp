#include <lockstep/app/commands/predict_network.h>

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include <lockstep/app/train/plan/program.h>
#include <lockstep/models/factory.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/training/prediction.h>
#include <lockstep/parallel/training/replica_models.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

NetworkFacts known_facts(const NamedWeights& named) {
  if (named.facts) return *named.facts;
  throw WeightsError(
      fmt::format("{} does not say what its network takes and which classes it knows", in_quotes(named.path)),
      "runs and files of earlier versions, networks without classes and files of Python do not: "
      "train --init-from FILE --limit-steps 1 --lr 1e-30 --save FILE writes one that does");
}

// Lockstep's models take floats. A program takes what its own file says.
bool takes_bytes(const Program* program, const NetworkFacts& facts) {
  if (!program) return false;
  const auto& inputs = program->inputs();
  const auto found = std::ranges::find(inputs, facts.input, &Program::Tensor::name);
  if (found != inputs.end()) return found->dtype == torch::kUInt8;
  return inputs.size() == 1 && inputs.front().dtype == torch::kUInt8;
}

ModelFactory factory_for(const NamedWeights& named, const NetworkFacts& facts, Precision precision) {
  if (const auto& program = named.program.program) {
    check_has_evaluation(*program);
    return program_model(program, named.program.loss);
  }
  if (facts.row_shape.size() != 3) {
    throw WeightsError(fmt::format("{} says that {} takes rows of {} dimensions, images have 3",
                                   in_quotes(named.path), named.file.model, facts.row_shape.size()),
                       "take the weights of another run");
  }
  return make_model_factory({.name = named.file.model,
                             .channels = facts.row_shape[0],
                             .classes = std::ssize(facts.classes),
                             .dtype = dtype_of(precision),
                             .initialization = {},
                             .height = facts.row_shape[1],
                             .width = facts.row_shape[2]});
}

std::vector<torch::Device> checked_devices(std::vector<torch::Device> devices, Precision precision) {
  check_precision(precision, devices);
  set_arithmetic(precision, /*deterministic=*/false);
  return devices;
}

}  // namespace

PredictNetwork::PredictNetwork(const NamedWeights& named, std::vector<torch::Device> devices,
                               std::optional<int> threads, Precision precision)
    : path_(named.path),
      facts_(known_facts(named)),
      program_(named.program.program),
      takes_bytes_(lockstep::takes_bytes(program_.get(), facts_)),
      devices_(checked_devices(std::move(devices), precision)),
      precision_(precision),
      models_(models_with(named, factory_for(named, facts_, precision), precision, devices_)),
      workers_(devices_, threads),
      // For small collectives: NCCL would take longer to start.
      communicator_(
          make_communicator({.devices = devices_, .threads = threads, .algorithm = Allreduce::kTwoShot})) {}

torch::Tensor PredictNetwork::probabilities(const torch::Tensor& rows, const RowsOfNetwork& network) {
  const auto count = rows.size(0);
  if (program_) check_evaluation_rows(*program_, count);
  const auto sources = sources_for(devices_, sources_of_rows(rows, network));
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  const auto logits = predict(models_, sources, numbers, precision_, workers_, *communicator_);
  if (logits.dim() != 2 || logits.size(1) != std::ssize(facts_.classes)) {
    throw WeightsError(
        fmt::format("the network of {} gives {} numbers per row for {} classes", in_quotes(path_),
                    logits.dim() == 2 ? logits.size(1) : 0, facts_.classes.size()),
        "predict knows networks of classes");
  }
  auto shares = logits.to(torch::kFloat64).softmax(1).contiguous();
  if (!shares.isfinite().all().item<bool>()) {
    throw NumericError(fmt::format("the network of {} gives numbers that are not finite", in_quotes(path_)),
                       "its weights, or the rows, hold numbers that are NaN, infinite or too large");
  }
  return shares;
}

}  // namespace lockstep
