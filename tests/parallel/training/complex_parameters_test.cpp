// Models with complex parameters. torch's optimizers take a complex number as two real ones, so the reference
// is a model that has those as its parameters, in stock torch.
#include <torch/nn/modules/linear.h>

#include <lockstep/tests/catch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/tests/parallel/gradients/sync_world.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/trainer_states.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/plain_training.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// One real and two complex parameters; one of them is transposed in memory. as_real: their parts are the
// parameters.
class ComplexLayersImpl : public torch::nn::Module {
 public:
  explicit ComplexLayersImpl(bool as_real) : as_real_(as_real) {
    const auto numbers = [](at::IntArrayRef sizes, double phase) {
      return (torch::arange(c10::multiply_integers(sizes), torch::kFloat32).mul(.7) + phase)
          .sin()
          .mul(.1)
          .view(sizes);
    };
    inner_ = register_parameter("inner", numbers({784, 5}, 0));
    const auto outer = numbers({5, 10, 2}, 1), bias = numbers({10, 2}, 2);
    const auto of = [&](const torch::Tensor& parts) {
      return as_real ? parts : torch::view_as_complex(parts);
    };
    outer_ = register_parameter("outer", as_real ? outer : of(outer).t().contiguous().t());
    bias_ = register_parameter("bias", of(bias).clone());
    mean_ = register_buffer("mean", of(numbers({3, 2}, 3)).clone());
  }

  torch::Tensor forward(const torch::Tensor& X) {
    const auto of = [&](const torch::Tensor& param) {
      return as_real_ ? torch::view_as_complex(param) : param;
    };
    const auto outer = of(outer_);
    const auto hidden = X.flatten(1).mm(inner_).tanh().to(outer.scalar_type());
    const auto complex = hidden.mm(outer) + of(bias_);
    return torch::real(complex) + torch::imag(complex) * torch::real(complex).tanh();
  }

 private:
  const bool as_real_;
  torch::Tensor inner_, outer_, bias_, mean_;
};

ModelFactory complex_layers() { return model_factory<ComplexLayersImpl>(/*as_real=*/false); }
ModelFactory real_layers() { return model_factory<ComplexLayersImpl>(/*as_real=*/true); }

torch::Tensor parts_of(const torch::Tensor& tensor) {
  return tensor.is_complex() ? torch::view_as_real(tensor) : tensor;
}

std::vector<TrainingCase> complex_cases() {
  return {{"sgd"},
          {"momentum, clipped", {.momentum = .9, .weight_decay = .01}, .2, .05},
          {"adamw", {.kind = OptimizerKind::kAdamW, .weight_decay = .1}, .01},
          {"parameterwise",
           {},
           .2,
           0,
           [](auto& options) { options.replica.sync.mode = SyncMode::kParameterwise; }},
          {"micro-batches, two in flight",
           {.momentum = .9},
           .2,
           0,
           [](auto& options) {
             options.accumulate = 2;
             options.in_flight = 2;
           }},
          {"invariant", {.momentum = .9}, .2, 0, [](auto& options) { options.replica.invariant = true; }}};
}

void check_against_plain(const std::vector<NamedTensor>& found, const TrainingCase& wanted,
                         double tolerance) {
  PlainTraining plain(real_layers(), wanted);
  const RowSource rows(32);
  for (const auto& batch : kBatches) plain.step(rows.batch(batch));
  const auto expected = plain.module().named_parameters();
  for (const auto& [name, tensor] : found) {
    if (const auto* param = expected.find(name)) {
      INFO(name);
      CHECK(relative_error(parts_of(tensor), *param) < tolerance);
    }
  }
}

}  // namespace

TEST_CASE("complex parameters beside real ones train as their parts do with torch's optimizers") {
  const int world = GENERATE(1, 2, 4);
  for (const auto precision : {Precision::kFp64, Precision::kFp32}) {
    const bool doubles = precision == Precision::kFp64;
    for (const auto& wanted : complex_cases()) {
      INFO(wanted.name << ", " << world << " replicas, " << (doubles ? "fp64" : "fp32"));
      auto trainer = make_trainer(complex_layers(), wanted.options(world, precision));
      for (const auto& batch : kBatches) trainer.step(batch);
      trainer.check_sync();
      const auto found = trainer.weights(world - 1);
      REQUIRE(found.size() == 4);
      for (const auto& [name, tensor] : found) {
        CHECK(tensor.is_complex() == (name != "inner"));
        CHECK(c10::toRealValueType(tensor.scalar_type()) == (doubles ? torch::kFloat64 : torch::kFloat32));
      }
      // In float AdamW's first steps have the sign of gradients that are rounding alone.
      if (!doubles && wanted.optimizer.kind == OptimizerKind::kAdamW) continue;
      check_against_plain(found, wanted, doubles ? 1e-11 : 2e-4);
    }
  }
}

TEST_CASE("a run with complex parameters goes on from its states with the same bits") {
  for (const auto& wanted : complex_cases()) {
    INFO(wanted.name);
    const auto options = wanted.options(2, Precision::kFp32);
    auto whole = make_trainer(complex_layers(), options);
    auto part = new_trainer(complex_layers(), options);
    for (const auto& batch : kBatches) {
      whole.step(batch);
      const auto state = part->state();
      part = new_trainer(complex_layers(), options);
      part->load(state);
      part->step(batch);
    }
    CHECK(same_tensors(part->weights(), whole.weights()));
    const auto kept = whole.state().optimizer;
    CHECK(same_tensors(part->state().optimizer, kept));
    for (const auto& [name, tensor] : kept) {  // as torch keeps them
      CHECK(tensor.is_complex() == (name.ends_with(".outer") || name.ends_with(".bias")));
    }
  }
}

TEST_CASE("complex parameters train in several processes") {
  const auto wanted = complex_cases()[1];
  const auto options = wanted.options(1, Precision::kFp64);
  for (const auto& found : in_processes({1, 2}, options, [](int, const TrainerOptions& own) {
         auto trainer = make_trainer(complex_layers(), own);
         for (const auto& batch : kBatches) trainer.step(batch);
         trainer.check_sync();
         return trainer.weights();
       })) {
    check_against_plain(found, wanted, 1e-11);
  }
}

// |p k|^2 has the gradient 2 p |k|^2, and real(p k) that of conj(k): whole numbers here.
TEST_CASE("in a loop of one's own a complex gradient is the sum over the ranks, in every mode") {
  const auto mode = GENERATE_COPY(from_range(kModes));
  const auto dtype = GENERATE(torch::kComplexFloat, torch::kComplexDouble);
  const auto wrong = by_rank(3, [&](int rank, Endpoint& endpoint) {
    std::string what;
    torch::nn::Module net;
    const auto p = net.register_parameter("p", torch::full({7}, c10::complex<double>(rank, 1), dtype));
    const auto sized_for_half = torch::full({3}, rank + 1, c10::toRealValueType(dtype));
    const auto q = net.register_parameter("q", sized_for_half);
    GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 1});
    sync.attach(net);
    const auto zeros = torch::zeros({7}, dtype);
    if (!p.equal(zeros + c10::complex<double>(0, 1))) what += "not rank 0's; ";
    for (const bool to_none : {true, false}) {
      net.zero_grad(to_none);
      const auto k = torch::full({7}, c10::complex<double>(rank + 1, rank - 2), dtype);
      (torch::real(p * k).sum() + (q * q * (rank + 1)).sum()).backward();
      sync.wait();
      if (!p.grad().equal(zeros + c10::complex<double>(6, 3))) what += "another sum; ";
      if (!q.grad().eq(12).all().item<bool>()) what += "another real sum; ";
      if (!p.grad().is_alias_of(sync.flat_gradients())) what += "no view; ";
    }
    return what;
  });
  CHECK(wrong == std::vector<std::string>(3));
}
