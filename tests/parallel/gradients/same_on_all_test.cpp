// The facts that attach() and broadcast_module() compare between ranks before they rely on them.
#include <torch/nn/module.h>

#include <fmt/format.h>

#include <lockstep/tests/catch.h>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/tests/parallel/gradients/sync_world.h>
#include <lockstep/tests/support/thread_processes.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::StartsWith;

namespace {

struct Registered {
  std::string name = "w";
  std::vector<int64_t> sizes = {2, 3};
  torch::ScalarType dtype = torch::kFloat32;
  bool trained = true;
  bool channels_last = false;
};

using RegisteredTensors = std::vector<Registered>;

std::shared_ptr<torch::nn::Module> module_of(const RegisteredTensors& params,
                                             const RegisteredTensors& buffers = {}) {
  auto module = std::make_shared<torch::nn::Module>();
  for (const auto& param : params) {
    const auto format = param.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    module->register_parameter(param.name, torch::ones(param.sizes, param.dtype).contiguous(format),
                               param.trained);
  }
  for (const auto& buffer : buffers) {
    module->register_buffer(buffer.name, torch::ones(buffer.sizes, buffer.dtype));
  }
  return module;
}

// The one error that all ranks get when the last of them has `other`; empty: none.
std::string refusal(int world, const std::function<void(Endpoint&, bool other)>& call) {
  const auto errors =
      refusals(world, [&](int rank, Endpoint& endpoint) { call(endpoint, rank == world - 1); });
  CHECK(errors == std::vector<std::string>(errors.size(), errors.front()));
  return errors.front();
}

struct Modules {
  RegisteredTensors own, other;  // the parameters, the other ones of the last rank
  RegisteredTensors own_buffers = {}, other_buffers = {};
};

}  // namespace

TEST_CASE("modules that differ between ranks are refused, on all ranks alike, with both tensors") {
  const Registered w, b{.name = "b", .sizes = {3}}, c{.name = "c", .sizes = {3}};
  const Registered frozen{.name = "b", .sizes = {3}, .trained = false};
  const Registered image{.sizes = {2, 3, 4, 4}}, other_format{.sizes = {2, 3, 4, 4}, .channels_last = true};
  const std::tuple<Modules, const char*, const char*> cases[] = {
      {{{w, b}, {w, b}, {b}, {b}}, "", ""},
      {{{other_format}, {other_format}}, "", ""},
      {{{w, b}, {{.sizes = {2, 4}}, b}}, "w [2, 4] Float", "w [2, 3] Float"},
      {{{w}, {{.sizes = {3, 2}}}}, "w [3, 2] Float", "w [2, 3] Float"},  // as many elements
      {{{w}, {{.dtype = torch::kFloat64}}}, "w [2, 3] Double", "w [2, 3] Float"},
      {{{w, b}, {w, c}}, "c [3] Float", "b [3] Float"},
      {{{w, b}, {w, frozen}}, "b [3] Float, frozen", "b [3] Float"},
      {{{w}, {w, b}}, "b [3] Float", "nothing more"},
      {{{w, b}, {w}}, "nothing more", "b [3] Float"},
      {{{image}, {other_format}}, "w [2, 3, 4, 4] Float, strides [48, 1, 12, 3]", "w [2, 3, 4, 4] Float"},
      {{{w}, {w}, {}, {b}}, "b [3] Float", "nothing more"}};
  for (const auto& [modules, last, first] : cases) {
    const auto found = refusal(3, [&, &given = modules](Endpoint& endpoint, bool other) {
      const auto module =
          other ? module_of(given.other, given.other_buffers) : module_of(given.own, given.own_buffers);
      GradientSync(endpoint).attach(*module);
    });
    CHECK(
        found ==
        (*last == 0 ? "" : fmt::format("the models differ: rank 2 has {} where rank 0 has {}", last, first)));
  }
}

TEST_CASE("modules that differ between ranks are not broadcast") {
  CHECK(refusal(2, [](Endpoint& endpoint, bool other) {
          broadcast_module(*module_of({{.sizes = {other ? 5 : 4}}}), endpoint);
        }) == "the models differ: rank 1 has w [5] Float where rank 0 has w [4] Float");
}

TEST_CASE("options of GradientSync that differ between ranks are refused") {
  const std::tuple<GradientSyncOptions, const char*, const char*> cases[] = {
      {{}, "", ""},
      {{.mode = SyncMode::kBucketed}, "mode bucketed", "mode overlapped"},
      {{.bucket_bytes = 4096}, "bucket_bytes 4096", "bucket_bytes 26214400"},
      {{.unused = UnusedParameters::kZero}, "UnusedParameters::kZero", "UnusedParameters::kError"},
      {{.hook = bf16_hook()}, "a bucket hook", "no bucket hook"}};
  for (const auto& [options, last, first] : cases) {
    const auto found = refusal(2, [&, &given = options](Endpoint& endpoint, bool other) {
      GradientSync(endpoint, other ? given : GradientSyncOptions{}).attach(*module_of({Registered{}}));
    });
    CHECK(found == (*last == 0
                        ? ""
                        : fmt::format("the options differ: rank 1 has {} where rank 0 has {}", last, first)));
  }
}

TEST_CASE("modules of other processes are compared, too, before Gloo gets a tensor") {
  std::vector<std::string> errors(3);
  run_processes(2, [&](int process, const Group& group) {
    const std::vector<torch::Device> devices(process == 0 ? 2 : 1, torch::kCPU);
    const auto communicator = make_communicator({.devices = devices, .process_group = group});
    ReplicaWorkers(devices, 1).run(*communicator, [&](int, Endpoint& endpoint) {
      const auto module = module_of({{.dtype = process == 0 ? torch::kFloat32 : torch::kFloat64}});
      errors[static_cast<size_t>(endpoint.rank())] =
          refusal_of([&] { GradientSync(endpoint).attach(*module); });
    });
  });
  CHECK(errors == std::vector<std::string>(3,
                                           "the models differ: rank 2 has w [2, 3] Double where rank 0 has w "
                                           "[2, 3] Float"));
}

TEST_CASE("a module without parameters to train is refused") {
  SyncWorld world(1);
  GradientSync sync(world.communicator->endpoint(0));
  const auto hint_of = [&](const RegisteredTensors& params) {
    return refusal_and_hint([&] { sync.attach(*module_of(params, {{.name = "buffer"}})); });
  };
  CHECK_THAT(hint_of({}),
             StartsWith("the module has no parameters to train | its constructor registers them: "));
  CHECK_THAT(
      hint_of(RegisteredTensors{{.name = "a", .trained = false}, {.name = "b", .trained = false}}),
      StartsWith("the module has no parameters to train: all 2 are frozen | call requires_grad_(true)"));
  CHECK(hint_of(RegisteredTensors{{}}).empty());  // and it can be attached to another one afterwards
}
