#include <lockstep/tests/catch.h>

#include <string>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/operations.h>
#include <lockstep/models/program/python_line.h>

using namespace lockstep::program;

TEST_CASE("Operations that training graphs hold are allowed") {
  struct Case {
    std::string target;
    OperationKind kind;
  };
  const Case cases[] = {
      {"torch.ops.aten.linear.default", OperationKind::kTorch},
      {"torch.ops.aten.add_.Tensor", OperationKind::kTorch},
      {"torch.ops.aten.scaled_dot_product_attention.default", OperationKind::kTorch},
      {"torch.ops.aten._weight_norm.default", OperationKind::kTorch},
      {"torch.ops.aten.__and__.Tensor", OperationKind::kTorch},
      {"torch.ops.aten.div.out", OperationKind::kTorch},
      {"torch.ops.aten._assert_scalar.default", OperationKind::kTorch},
      {"torch.ops.aten._assert_tensor_metadata.default", OperationKind::kAssertion},
      {"torch.ops.higher_order.wrap_with_set_grad_enabled", OperationKind::kRegion},
      {"_operator.mul", OperationKind::kArithmetic},
      {"torch.sym_float", OperationKind::kArithmetic},
      {"math.trunc", OperationKind::kArithmetic},
  };
  for (const auto& row : cases) {
    INFO(row.target);
    CHECK(operation_kind(row.target) == row.kind);
  }
}

TEST_CASE("All other operations are refused by name, with what to do") {
  struct Case {
    std::string target, hint;
  };
  const std::string of_aten = "write it with operations of the list";
  const Case cases[] = {
      {"torch.ops.aten.from_file.default", of_aten},
      {"torch.ops.aten.set_.source_Storage", of_aten},
      {"torch.ops.aten.resize_.default", of_aten},
      {"torch.ops.aten.resize_as_.default", of_aten},
      {"torch.ops.aten.sparse_coo_tensor.indices", of_aten},
      {"torch.ops.aten._sparse_mm.default", of_aten},
      {"torch.ops.aten.quantize_per_tensor.default", of_aten},
      {"torch.ops.aten.combinations.default", of_aten},
      {"torch.ops.aten.native_batch_norm.default", "call torch.nn.functional.batch_norm()"},
      {"torch.ops.aten._native_batch_norm_legit.default", of_aten},
      {"torch.ops.aten.add.out", of_aten},
      {"torch.ops.aten.linear", of_aten},
      {"torch.ops.aten.linear.", of_aten},
      {"torch.ops.aten._cudnn_rnn.default", of_aten},
      {"torch.ops.prims.convert_element_type.default", "custom operations exist in Python only"},
      {"torch.ops.mine.op.default", "custom operations exist in Python only"},
      {"torch.ops.higher_order.cond", "replace torch.cond by torch.where"},
      {"torch.ops.higher_order.wrap_with_autocast", "leave torch.autocast out of forward()"},
      {"torch.ops.higher_order.while_loop", "lockstep runs torch.no_grad() and torch.enable_grad() regions"},
      {"_operator.getitem", ""},
      {"builtins.eval", ""},
      {"os.system", ""},
      {"", ""},
  };
  for (const auto& row : cases) {
    INFO(row.target);
    std::string words, hint = "none";
    try {
      operation_kind(row.target);
    } catch (const FormatError& error) {
      words = error.what();
      hint = error.hint();
    }
    CHECK(words == "calls '" + row.target + "', which lockstep does not run");
    CHECK(hint.substr(0, row.hint.size()) == row.hint);
  }
}

TEST_CASE("Operations that change or share their first argument are known") {
  for (const auto* name : {"add_", "relu_", "__iand__", "copy_"}) CHECK(changes_self(name));
  for (const auto* name : {"add", "__and__", "requires_grad_"}) CHECK_FALSE(changes_self(name));
  for (const auto* name : {"view", "select", "detach", "add_", "einsum", "cartesian_prod", "chain_matmul"})
    CHECK(may_be_view(name));
  for (const auto* name : {"add", "clone", "linear"}) CHECK_FALSE(may_be_view(name));
}

TEST_CASE("The line of Python is the user's innermost one") {
  struct Case {
    std::string place, line;
  };
  const std::string
      user = "File \"/home/me/net.py\", line 16, in forward\n    h = self.bn(x)",
      torch =
          "\n  File \"/usr/lib/python3/dist-packages/torch/nn/modules/batchnorm.py\", line 210, in forward\n"
          "    return F.batch_norm(",
      made = "\n  File \"<eval_with_key>.53\", line 11, in forward\n    cond = 1";
  const Case cases[] = {
      {"", ""},
      {"rubbish", ""},
      {user, "/home/me/net.py, line 16: h = self.bn(x)"},
      {user + torch, "/home/me/net.py, line 16: h = self.bn(x)"},
      {user + made, "/home/me/net.py, line 16: h = self.bn(x)"},
      {user + "\n  File \"layers.py\", line 3, in g\n    y" + torch, "layers.py, line 3: y"},
      {"File \"torch/fx/passes/runtime_assert.py\", line 24, in f",
       "torch/fx/passes/runtime_assert.py, line 24"},
      {"File \"a.py\", line 1, in f\n  " + std::string(200, 'x'),
       "a.py, line 1: " + std::string(100, 'x') + "..."},
      {"File \"a\x1b.py\", line 1, in f", "a?.py, line 1"},
  };
  for (const auto& row : cases) {
    INFO(row.place);
    CHECK(python_line(row.place) == row.line);
  }
}
