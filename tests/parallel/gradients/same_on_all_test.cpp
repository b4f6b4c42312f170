// The facts that attach() and broadcast_module() compare between ranks before they rely on them.
#include <torch/nn/module.h>

#include <lockstep/tests/catch.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/gradients/sync_world.h>
#include <lockstep/tests/support/thread_processes.h>

using namespace lockstep;
using namespace lockstep::testing;

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

// The errors of the ranks when the last one has `other`.
std::vector<std::string> refusals(int world, const std::function<void(Endpoint&, bool other)>& call) {
  std::vector<std::string> errors(static_cast<size_t>(world));
  SyncWorld(world).run([&](int rank, Endpoint& endpoint) {
    try {
      call(endpoint, rank == world - 1);
    } catch (const UsageError& error) {
      errors[static_cast<size_t>(rank)] = error.message();
    }
  });
  return errors;
}

// The one error that all ranks get when the last of them attaches `other`.
std::string refusal(const RegisteredTensors& own, const RegisteredTensors& other,
                    const RegisteredTensors& own_buffers = {}, const RegisteredTensors& other_buffers = {}) {
  const auto errors = refusals(3, [&](Endpoint& endpoint, bool is_other) {
    const auto module = is_other ? module_of(other, other_buffers) : module_of(own, own_buffers);
    GradientSync(endpoint).attach(*module);
  });
  CHECK(errors == std::vector<std::string>(3, errors.front()));
  return errors.front();
}

}  // namespace

TEST_CASE("modules that differ between ranks are refused, on all ranks alike, with both tensors") {
  const Registered w, b{.name = "b", .sizes = {3}};
  CHECK(refusal({w, b}, {w, b}, {b}, {b}).empty());
  CHECK(refusal({w, b}, {{.sizes = {2, 4}}, b}) ==
        "the models differ: rank 2 has w [2, 4] Float where rank 0 has w [2, 3] Float");
  CHECK(refusal({w}, {{.sizes = {3, 2}}}) ==  // as many elements
        "the models differ: rank 2 has w [3, 2] Float where rank 0 has w [2, 3] Float");
  CHECK(refusal({w}, {{.dtype = torch::kFloat64}}) ==
        "the models differ: rank 2 has w [2, 3] Double where rank 0 has w [2, 3] Float");
  CHECK(refusal({w, b}, {w, {.name = "c", .sizes = {3}}}) ==
        "the models differ: rank 2 has c [3] Float where rank 0 has b [3] Float");
  CHECK(refusal({w, b}, {w, {.name = "b", .sizes = {3}, .trained = false}}) ==
        "the models differ: rank 2 has b [3] Float, frozen where rank 0 has b [3] Float");
  CHECK(refusal({w}, {w, b}) == "the models differ: rank 2 has b [3] Float where rank 0 has nothing more");
  CHECK(refusal({w, b}, {w}) == "the models differ: rank 2 has nothing more where rank 0 has b [3] Float");
  const Registered image{.sizes = {2, 3, 4, 4}}, other_format{.sizes = {2, 3, 4, 4}, .channels_last = true};
  CHECK(refusal({other_format}, {other_format}).empty());
  CHECK(refusal({image}, {other_format}) ==
        "the models differ: rank 2 has w [2, 3, 4, 4] Float, strides [48, 1, 12, 3] where rank 0 has w [2, "
        "3, 4, 4] "
        "Float");
  CHECK(refusal({w}, {w}, {}, {b}) ==
        "the models differ: rank 2 has b [3] Float where rank 0 has nothing more");
}

TEST_CASE("modules that differ between ranks are not broadcast") {
  const auto errors = refusals(2, [](Endpoint& endpoint, bool other) {
    const auto module = module_of({{.sizes = {other ? 5 : 4}}});
    broadcast_module(*module, endpoint);
  });
  CHECK(errors == std::vector<std::string>(
                      2, "the models differ: rank 1 has w [5] Float where rank 0 has w [4] Float"));
}

TEST_CASE("options of GradientSync that differ between ranks are refused") {
  const auto refusal_of = [](const GradientSyncOptions& options) {
    const auto errors = refusals(2, [&](Endpoint& endpoint, bool other) {
      const auto module = module_of({Registered{}});
      GradientSync(endpoint, other ? options : GradientSyncOptions{}).attach(*module);
    });
    CHECK(errors[1] == errors[0]);
    return errors[0];
  };
  CHECK(refusal_of({}).empty());
  CHECK(refusal_of({.mode = SyncMode::kBucketed}) ==
        "the options differ: rank 1 has mode bucketed where rank 0 has mode overlapped");
  CHECK(refusal_of({.bucket_bytes = 4096}) ==
        "the options differ: rank 1 has bucket_bytes 4096 where rank 0 has bucket_bytes 26214400");
  CHECK(refusal_of({.unused = UnusedParameters::kZero}) ==
        "the options differ: rank 1 has UnusedParameters::kZero where rank 0 has UnusedParameters::kError");
  CHECK(refusal_of({.hook = bf16_hook()}) ==
        "the options differ: rank 1 has a bucket hook where rank 0 has no bucket hook");
}

TEST_CASE("modules of other processes are compared, too, before Gloo gets a tensor") {
  std::vector<std::string> errors(3);
  run_processes(2, [&](int process, const std::shared_ptr<ProcessGroup>& group) {
    const std::vector<torch::Device> devices(process == 0 ? 2 : 1, torch::kCPU);
    const auto communicator = make_communicator({.devices = devices, .process_group = group});
    ReplicaWorkers(devices, 1).run(*communicator, [&](int, Endpoint& endpoint) {
      const auto module = module_of({{.dtype = process == 0 ? torch::kFloat32 : torch::kFloat64}});
      try {
        GradientSync(endpoint).attach(*module);
      } catch (const UsageError& error) {
        errors[static_cast<size_t>(endpoint.rank())] = error.message();
      }
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
    try {
      sync.attach(*module_of(params, {{.name = "buffer"}}));
    } catch (const UsageError& error) {
      return error.message() + "; " + error.hint();
    }
    return std::string();
  };
  CHECK(hint_of({}) ==
        "the module has no parameters to train; its constructor registers them: layers by "
        "register_module(), tensors by register_parameter()");
  CHECK(
      hint_of(RegisteredTensors{{.name = "a", .trained = false}, {.name = "b", .trained = false}}) ==
      "the module has no parameters to train: all 2 are frozen; call requires_grad_(true) on those to train");
  CHECK(hint_of(RegisteredTensors{{}}).empty());  // and it can be attached to another one afterwards
}
