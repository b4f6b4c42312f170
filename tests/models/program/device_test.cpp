// Torch's "meta" device stands for a GPU: its tensors have no values, so a value or a device of the CPU that
// was left in the graph is an error.
#include <ATen/core/ivalue.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <lockstep/models/program/interpreter.h>
#include <lockstep/models/program/module_tree.h>
#include <lockstep/models/program/parts.h>
#include <lockstep/tests/catch.h>
#include <lockstep/tests/models/program/fixture.h>
#include <lockstep/tests/models/program/tiny_program.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/temp_folder.h>

namespace lockstep {
namespace {

using testing::Fixture;

// Values as a module on the meta device would give them.
std::vector<c10::IValue> meta_values(const Program::Parts& parts, const Batch& batch) {
  const auto& graph = parts.training;
  std::vector<c10::IValue> values(static_cast<size_t>(graph.resolved.graph->slots));
  const auto set = [&](int slot, const torch::Tensor& tensor) {
    values[static_cast<size_t>(slot)] = tensor.to(torch::kMeta);
  };
  for (const auto& input : graph.inputs) {
    set(input.slot, graph.inputs.size() == 1 ? batch[0] : batch[input.name]);
  }
  for (const auto& [slot, index] : graph.tensors) {
    set(slot, program::read_stored(*parts.file.archive, parts.tensors[index].stored));
  }
  for (const auto& [slot, index] : graph.constants) {
    set(slot, program::read_stored(*parts.file.archive, graph.stored_constants[index]));
  }
  for (const auto& [slot, value] : graph.fixed) values[static_cast<size_t>(slot)] = value;
  return values;
}

TEST_CASE("All that a program makes is made on the device of its module") {
  // LibTorch has relu, embeddings and batch norm on this device only where Python registers them.
  const std::string name = GENERATE("constants", "gru");
  INFO(name);
  const Fixture fixture(name);
  const auto batch = fixture.batch(0);
  const auto& parts = fixture.program->parts();
  const auto& graph = parts.training.resolved;
  std::vector<program::BoundNorm> norms(graph.norms.size());
  for (auto& norm : norms) {
    norm.module = std::make_shared<torch::nn::BatchNorm1dImpl>(1);  // in training
    norm.exchange = [] { return nullptr; };
  }
  const auto outputs =
      run_graph(*graph.graph, meta_values(parts, batch),
                {.program = name, .device = torch::kMeta, .float_type = parts.float_type, .norms = norms});
  for (const size_t i : parts.training.output_places) CHECK(outputs[i].toTensor().is_meta());
}

TEST_CASE("cuDNN is on for the operations that ask, although files always say that it is off") {
  std::set<std::string> found;
  for (const auto& name : {"conv_bn", "frozen_norm"}) {
    const auto program = Fixture(name).program;
    for (const auto& node : program->parts().training.resolved.graph->nodes) {
      if (!node.operation) continue;
      const auto& wanted = node.operation->schema().arguments();
      for (size_t i = 0; i < wanted.size(); ++i) {
        if (!wanted[i].name().starts_with("cudnn_enable")) continue;
        CHECK(node.arguments[i].constant.toBool());
        found.insert(node.name);
      }
    }
  }
  CHECK(found.contains("aten::batch_norm"));
}

TEST_CASE("A program whose sizes depend on its data is not captured into a graph") {
  const auto captures = [](const std::string& operation) {
    auto tiny = testing::tiny_program();
    if (!operation.empty()) {
      tiny.replace("models/model.json", "torch.ops.aten.add.Tensor", operation);
      tiny.replace("models/model.json",
                   R"J(,
         {"name": "other", "arg": {"as_tensor": {"name": "b_b"}}, "kind": 1}])J",
                   "]");
    }
    const testing::TempFolder folder;
    testing::write_file(folder / "tiny.pt2", tiny.bytes());
    return read_program(folder / "tiny.pt2")->captures();
  };
  CHECK(captures(""));
  CHECK(captures("torch.ops.aten.relu.default"));
  CHECK_FALSE(captures("torch.ops.aten.nonzero.default"));
  CHECK_FALSE(captures("torch.ops.aten.argwhere.default"));
}

}  // namespace
}  // namespace lockstep
