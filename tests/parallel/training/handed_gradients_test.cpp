// Steps of a Trainer on fake GPUs, where autograd hands the gradients over instead of adding them to zeros.
#include <ATen/record_function.h>

#include <lockstep/tests/catch.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <lockstep/models/layers/bf16_weights.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/gradients/flat_fill_queued.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/fake_gpu/fake_gpu.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using DeviceList = std::vector<torch::Device>;

// Its products are computed with bf16 weights, its biases are not. `spare` is reached by no loss.
class RoundedLayersImpl : public torch::nn::Module {
 public:
  explicit RoundedLayersImpl(bool spare) {
    const auto weight = [](int64_t rows, int64_t columns) {
      return torch::arange(rows * columns, torch::kFloat32).mul(.7).sin().mul(.1).view({rows, columns});
    };
    inner_ = register_parameter("inner", weight(784, 6));
    bias_ = register_parameter("bias", torch::zeros({6}));
    outer_ = register_parameter("outer", weight(6, 10));
    if (spare) register_parameter("spare", torch::ones({5}));
  }

  torch::Tensor forward(const torch::Tensor& X) {
    const auto hidden = (product(X.flatten(1), inner_) + bias_).tanh();
    return product(hidden, outer_);
  }

  void use_bf16_weights(const Params& given) { weights_.use(parameters(), given); }

 private:
  torch::Tensor product(const torch::Tensor& X, const torch::Tensor& weight) const {
    const auto of_layer = weights_.of(weight, X);
    return torch::mm(X.to(torch::kBFloat16), of_layer.to(torch::kBFloat16)).to(torch::kFloat32);
  }

  Bf16Weights weights_;
  torch::Tensor inner_, bias_, outer_;
};

// Two heads, of which the second has a backward pass of its own within the loss.
struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl() {
    const auto weight = torch::arange(7840, torch::kFloat32).mul(.7).sin().mul(.1).view({784, 10});
    second = register_parameter("second", weight.flip(0).contiguous());
    first = register_parameter("first", weight);
  }
  torch::Tensor loss(const Batch& in) const {
    const auto X = in.input().flatten(1);
    const auto of_head = [&](const torch::Tensor& weight) {
      return torch::cross_entropy_loss(X.mm(weight), in.target(), {}, torch::Reduction::Sum);
    };
    (of_head(second) * .01).backward();
    return of_head(first);
  }
  torch::Tensor first, second;
};

ModelFactory two_heads() {
  return model_factory<TwoHeadsImpl>().loss([](TwoHeadsImpl& net, const Batch& in) { return net.loss(in); });
}

ModelFactory rounded_layers(bool spare = false) { return model_factory<RoundedLayersImpl>(spare); }

TrainerOptions handing_options(const DeviceList& devices) {
  TrainerOptions options;
  options.devices = devices;
  options.threads = 1;
  options.lr = {.lr = .2};
  options.replica.optimizer = {.momentum = .9, .weight_decay = 1e-3};
  options.replica.cuda_graph = CudaGraph::kOff;
  return options;
}

// Six steps of nine rows.
std::vector<NamedTensor> weights_after_steps(const ModelFactory& factory, const TrainerOptions& options) {
  Trainer trainer(factory, rows_on_device(32), rows_on_device(32), options);
  for (int64_t step = 0; step < 6; ++step) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < 9; ++i) rows.push_back((step * 7 + i * 3) % 32);
    trainer.step(rows);
  }
  return trainer.weights(trainer.world_size() - 1);
}

// Without NDEBUG, as with sanitizers, torch's header takes a RecordFunction for larger than libtorch has
// built it.
#ifdef NDEBUG
// Counts operations on a fake GPU whose first tensor has so many elements.
class GpuOperations {
 public:
  explicit GpuOperations(std::set<int64_t> numels) : numels_(std::move(numels)) {
    instance() = this;
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback(&count).scopes({at::RecordScope::FUNCTION}).needsInputs(true));
  }
  ~GpuOperations() {
    at::removeCallback(handle_);
    instance() = nullptr;
  }

  int of(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second;
  }

 private:
  static GpuOperations*& instance() {
    static GpuOperations* one = nullptr;
    return one;
  }
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
    auto* own = instance();
    const auto inputs = function.inputs();
    if (!own || inputs.empty() || !inputs[0].isTensor()) return nullptr;
    const auto& tensor = inputs[0].toTensor();
    if (!tensor.defined() || !tensor.is_privateuseone() || !own->numels_.contains(tensor.numel())) {
      return nullptr;
    }
    const std::lock_guard lock(own->mutex_);
    ++own->counts_[function.name()];
    return nullptr;
  }

  const std::set<int64_t> numels_;
  at::CallbackHandle handle_ = 0;
  mutable std::mutex mutex_;
  std::map<std::string, int> counts_;
};
#endif

}  // namespace

TEST_CASE("gradients handed over on GPUs train as those that a CPU adds, with every option") {
  struct Case {
    std::string name;
    std::function<void(TrainerOptions&)> change;
    bool captures = true;
  };
  const std::vector<Case> cases = {
      {"plain", [](auto&) {}},
      {"small buckets", [](auto& options) { options.replica.sync.bucket_bytes = 64; }},
      {"bucketed", [](auto& options) { options.replica.sync.mode = SyncMode::kBucketed; }},
      {"parameterwise", [](auto& options) { options.replica.sync.mode = SyncMode::kParameterwise; }},
      {"accumulate", [](auto& options) { options.accumulate = 2; }},
      {"clip", [](auto& options) { options.replica.clip_norm = .1; }},
      {"ema", [](auto& options) { options.ema = .9; }},
      {"adam", [](auto& options) { options.replica.optimizer = {.kind = OptimizerKind::kAdam}; }},
      {"groups",
       [](auto& options) {
         options.replica.optimizer.group = [](const std::string& name, const torch::Tensor&) {
           return name == "bias" ? GroupOptions{.lr_factor = 2, .weight_decay = 0} : GroupOptions();
         };
       }},
      {"hook",
       [](auto& options) {
         options.replica.sync.hook = [](Endpoint& endpoint, const GradientBucket& bucket) {
           return endpoint.allreduce_gradients(bucket.gradients).then([bucket] {
             bucket.gradients.mul_(.5);
           });
         };
       }},
      {"check_sync", [](auto& options) { options.check_sync = 2; }},
      {"shard", [](auto& options) { options.shard = Shard::kOptimizer; }, false},
      {"shard gradients", [](auto& options) { options.shard = Shard::kGradients; }, false},
  };
  for (const auto& [name, change, captures] : cases) {
    for (const auto precision : {Precision::kFp32, Precision::kBf16}) {
      for (const auto& gpus : {DeviceList{fake_gpu(0)}, DeviceList{fake_gpu(0), fake_gpu(0)}}) {
        auto on_cpu = handing_options(DeviceList(gpus.size(), torch::kCPU));
        on_cpu.replica.precision = precision;
        change(on_cpu);
        const auto expected = weights_after_steps(rounded_layers(), on_cpu);
        for (const auto graph : {CudaGraph::kOff, CudaGraph::kOn}) {
          if (graph == CudaGraph::kOn && !captures) continue;
          INFO(name << ", " << name_of(kPrecisionNames, precision) << ", " << gpus.size() << " replicas, "
                    << name_of(kCudaGraphNames, graph));
          auto on_gpu = on_cpu;
          on_gpu.devices = gpus;
          on_gpu.replica.cuda_graph = graph;
          const auto found = weights_after_steps(rounded_layers(), on_gpu);
          for (size_t i = 0; i < expected.size(); ++i) {
            INFO(expected[i].name);
            CHECK(max_difference(found[i].tensor, expected[i].tensor) < 1e-5);
          }
        }
      }
    }
  }
}

#ifdef NDEBUG
TEST_CASE("on a GPU no gradient is added, copied or converted alone: one kernel fills each bucket") {
  const auto precision = GENERATE(Precision::kFp32, Precision::kBf16);
  const bool accumulates = GENERATE(false, true);
  INFO(name_of(kPrecisionNames, precision) << (accumulates ? ", accumulating" : ""));
  auto options = handing_options({fake_gpu(0)});
  options.replica.precision = precision;
  options.accumulate = accumulates ? 2 : 1;
  Trainer trainer(rounded_layers(), rows_on_device(32), rows_on_device(32), options);
  const std::vector<int64_t> rows = {1, 2, 3, 4, 5, 6, 7, 8};
  trainer.step(rows);
  trainer.synchronize();
  const int fills_before = queued_flat_fills();
  const GpuOperations operations({784 * 6, 6 * 10});  // of the weights
  trainer.step(rows);
  trainer.synchronize();
  // Two weights in two micro-batches.
  CHECK(operations.of("aten::add_") == (accumulates ? 4 : 0));
  CHECK(operations.of("aten::clone") == 0);
  CHECK(operations.of("aten::zero_") == 0);
  // Without bf16 weights autocast converts each fp32 weight, and its gradient back. With them no gradient is.
  if (precision == Precision::kBf16) CHECK(operations.of("aten::_to_copy") == 0);
  CHECK((queued_flat_fills() > fills_before) == !accumulates);
}
#endif

TEST_CASE("a bucket hook on a GPU sees the bits of the gradients that a CPU adds") {
  const auto first_gradients = [](const DeviceList& devices) {
    const auto seen = std::make_shared<std::vector<torch::Tensor>>();
    auto options = handing_options(devices);
    options.replica.precision = Precision::kBf16;
    options.replica.sync.hook = [seen](Endpoint& endpoint, const GradientBucket& bucket) {
      if (seen->size() < static_cast<size_t>(bucket.count)) seen->push_back(bucket.gradients.cpu().clone());
      return endpoint.allreduce_gradients(bucket.gradients);
    };
    weights_after_steps(rounded_layers(), options);
    return torch::cat(*seen);
  };
  const auto found = first_gradients({fake_gpu(0)});
  CHECK(found.ne(0).any().item<bool>());
  CHECK(found.equal(first_gradients({torch::kCPU})));
}

TEST_CASE("on GPUs a parameter that backward does not reach is named, or its gradient is zeros") {
  const auto graph = GENERATE(CudaGraph::kOff, CudaGraph::kOn);
  auto options = handing_options({fake_gpu(0)});
  options.replica.cuda_graph = graph;
  CHECK_THAT(refusal_of([&] { weights_after_steps(rounded_layers(/*spare=*/true), options); }),
             ContainsSubstring("backward reached 3 of 4 parameters; no gradient for spare"));
  options.replica.sync.unused = UnusedParameters::kZero;
  const auto found = weights_after_steps(rounded_layers(/*spare=*/true), options);
  options.devices = {torch::kCPU};
  options.replica.cuda_graph = CudaGraph::kOff;
  const auto expected = weights_after_steps(rounded_layers(/*spare=*/true), options);
  REQUIRE(found.size() == 4);
  for (size_t i = 0; i < found.size(); ++i) {
    INFO(expected[i].name);
    CHECK(max_difference(found[i].tensor, expected[i].tensor) < 1e-5);
  }
}

TEST_CASE("on GPUs gradients of a backward pass within the loss count as on a CPU") {
  const auto graph = GENERATE(CudaGraph::kOff, CudaGraph::kOn);
  auto options = handing_options({torch::kCPU});
  const auto expected = weights_after_steps(two_heads(), options);
  options.devices = {fake_gpu(0)};
  options.replica.cuda_graph = graph;
  const auto found = weights_after_steps(two_heads(), options);
  const auto untrained = TwoHeadsImpl();
  CHECK(max_difference(expected[1].tensor, untrained.second) > 1e-3);
  for (size_t i = 0; i < 2; ++i) CHECK(max_difference(found[i].tensor, expected[i].tensor) < 1e-5);
}

TEST_CASE("a step that is not finite is told on GPUs, where one kernel sums losses") {
  const auto graph = GENERATE(CudaGraph::kOff, CudaGraph::kOn);
  auto options = handing_options({fake_gpu(0)});
  options.replica.cuda_graph = graph;
  Trainer trainer(rounded_layers(), rows_on_device(32), rows_on_device(32), options);
  const std::vector<int64_t> rows = {1, 2, 3, 4};
  for (int step = 0; step < 5; ++step) trainer.step(rows);
  CHECK(trainer.take_sums().rows == 20);
  trainer.synchronize();
  {
    const torch::NoGradGuard no_grad;
    trainer.model(0).module->named_parameters()["bias"].fill_(std::numeric_limits<float>::quiet_NaN());
  }
  trainer.step(rows);
  trainer.step(rows);
  const auto sums = trainer.take_sums();
  CHECK(std::isnan(sums.loss));
  CHECK(sums.rows == 8);
  REQUIRE(sums.bad);
  CHECK(sums.bad->step == 5);
}
