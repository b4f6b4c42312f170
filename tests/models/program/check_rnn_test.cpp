#include <torch/types.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/models/program/interpreter.h>
#include <lockstep/tests/catch.h>

namespace lockstep {
namespace {

using Tensors = std::vector<torch::Tensor>;

// Arguments of a network of 2 layers in both directions: 3 sequences of 5 numbers, a state of 4.
struct RnnArguments {
  explicit RnnArguments(std::string operation, bool is_packed = false)
      : name(std::move(operation)), packed(is_packed) {
    const int64_t gates = name == "aten::lstm" ? 4 : name == "aten::gru" ? 3 : 1;
    for (const int64_t in : {5, 5, 8, 8}) {
      for (const auto& sizes :
           std::vector<std::vector<int64_t>>{{gates * 4, in}, {gates * 4, 4}, {gates * 4}, {gates * 4}}) {
        weights.push_back(torch::zeros(sizes));
      }
    }
    input = packed ? torch::zeros({6, 5}) : torch::zeros({3, 7, 5});
    states = Tensors(gates == 4 ? 2 : 1, torch::zeros({4, 3, 4}));
  }

  std::vector<c10::IValue> values() const {
    std::vector<c10::IValue> all{input};
    if (packed) all.emplace_back(batch_sizes);
    if (name == "aten::lstm") {
      all.emplace_back(states);
    } else {
      all.emplace_back(states[0]);
    }
    for (const c10::IValue& value : {c10::IValue(weights), c10::IValue(biases), c10::IValue(layers),
                                     c10::IValue(0.), c10::IValue(true), c10::IValue(bidirectional)}) {
      all.push_back(value);
    }
    if (!packed) all.emplace_back(true);  // the batch is the first dimension
    return all;
  }

  std::string name;
  bool packed;
  torch::Tensor input, batch_sizes = torch::tensor({3, 2, 1}, torch::kInt64);
  Tensors states, weights;
  bool biases = true, bidirectional = true;
  int64_t layers = 2;
};

std::string refusal_of_rnn(const RnnArguments& arguments) {
  try {
    program::check_rnn(arguments.name, arguments.values());
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

TEST_CASE("Recurrent layers whose arguments fit run, and compute what torch computes") {
  for (const std::string name : {"aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"}) {
    for (const bool packed : {false, true}) {
      INFO(name << (packed ? " packed" : ""));
      const RnnArguments arguments(name, packed);
      CHECK(refusal_of_rnn(arguments).empty());
      auto stack = arguments.values();
      const auto operation =
          c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), packed ? "data" : "input");
      CHECK_NOTHROW(operation.callBoxed(stack));
    }
  }
}

TEST_CASE("Recurrent layers whose arguments do not fit each other are refused with both values") {
  struct Case {
    std::string name;
    bool packed;
    std::function<void(RnnArguments&)> change;
    std::string words;
  };
  const auto zeros = [](std::vector<int64_t> sizes) { return torch::zeros(sizes); };
  const auto sizes = [](std::vector<int64_t> all) { return torch::tensor(all, torch::kInt64); };
  const std::vector<Case> cases{
      {"aten::lstm", false,
       [&](auto& a) {
         a.input = zeros({7, 5});
       },
       "its input has 2 dimensions"},
      {"aten::lstm", true,
       [&](auto& a) {
         a.input = zeros({3, 7, 5});
       },
       "its input has 3 dimensions"},
      {"aten::gru", false, [](auto& a) { a.layers = 0; }, "it has 0 layers"},
      {"aten::gru", false, [](auto& a) { a.layers = 10'000; }, "it has 10000 layers"},
      {"aten::gru", false, [](auto& a) { a.layers = 3; }, "it has 16 weights instead of 24"},
      {"aten::lstm", true, [](auto& a) { a.layers = 3; }, "it has 16 weights instead of 24"},
      {"aten::gru", false, [](auto& a) { a.bidirectional = false; }, "it has 16 weights instead of 8"},
      {"aten::gru", true, [](auto& a) { a.bidirectional = false; }, "it has 16 weights instead of 8"},
      {"aten::lstm", false, [](auto& a) { a.biases = false; }, "it has 16 weights instead of 8"},
      {"aten::lstm", false, [](auto& a) { a.states.pop_back(); }, "it has 1 states"},
      {"aten::lstm", false, [&](auto& a) { a.weights[1] = zeros({16}); }, "its weights have no gates"},
      {"aten::gru", false,
       [&](auto& a) {
         a.weights[1] = zeros({12, 5});
       },
       "its weights have other sizes than its state"},
      {"aten::gru", false,
       [&](auto& a) {
         a.weights[4] = zeros({12, 6});
       },
       "a weight of its input has the size [12, 6] instead of [12, 5]"},
      {"aten::gru", true,
       [&](auto& a) {
         a.weights[8] = zeros({12, 6});
       },
       "a weight of its input has the size [12, 6] instead of [12, 8]"},
      {"aten::gru", false,
       [&](auto& a) {
         a.weights[5] = zeros({12, 5});
       },
       "a weight of its state has the size [12, 5] instead of [12, 4]"},
      {"aten::rnn_tanh", false, [&](auto& a) { a.weights[2] = zeros({5}); },
       "a bias has the size [5] instead of [4]"},
      {"aten::rnn_relu", true,
       [&](auto& a) {
         a.states[0] = zeros({4, 2, 4});
       },
       "its state has the size [4, 2, 4] instead of [4, 3, 4]"},
      {"aten::lstm", false,
       [&](auto& a) {
         a.states[1] = zeros({4, 3, 5});
       },
       "its cell state has the size [4, 3, 5] instead of [4, 3, 4]"},
      {"aten::lstm", false, [](auto& a) { a.weights[3] = a.weights[3].to(torch::kFloat64); },
       "its weights have different dtypes"},
      {"aten::lstm", false, [](auto& a) { a.states[1] = a.states[1].to(torch::kFloat64); },
       "its states have different dtypes"},
      {"aten::lstm", true,
       [](auto& a) {
         a.batch_sizes = torch::tensor({3., 2., 1.});
       },
       "its batch sizes are no whole numbers on the CPU"},
      {"aten::lstm", true, [&](auto& a) { a.batch_sizes = sizes({}); }, "no whole numbers"},
      {"aten::gru", true,
       [&](auto& a) {
         a.batch_sizes = sizes({3, 2});
       },
       "its batch sizes leave 1 of 6 rows of its data"},
      {"aten::gru", true,
       [&](auto& a) {
         a.batch_sizes = sizes({3, 2, 2});
       },
       "its batch sizes have 2 in step 3, where 1 to 1 fit"},
      {"aten::gru", true,
       [&](auto& a) {
         a.batch_sizes = sizes({2, 3, 1});
       },
       "its batch sizes have 3 in step 2"},
      {"aten::gru", true,
       [&](auto& a) {
         a.batch_sizes = sizes({3, 2, 1, 0});
       },
       "its batch sizes have 0 in step 4"},
      {"aten::gru", true,
       [&](auto& a) {
         a.batch_sizes = sizes({3, 4, -1});
       },
       "its batch sizes have 4 in step 2"},
  };
  for (const auto& [name, packed, change, words] : cases) {
    INFO(name << ": " << words);
    RnnArguments arguments(name, packed);
    change(arguments);
    CHECK_THAT(refusal_of_rnn(arguments), Catch::Matchers::ContainsSubstring(words));
  }
}

}  // namespace
}  // namespace lockstep
