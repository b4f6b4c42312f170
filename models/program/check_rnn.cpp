#include <fmt/format.h>

#include <stdexcept>

#include <lockstep/models/program/interpreter.h>

namespace lockstep::program {
namespace {

// input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
struct Rnn {
  explicit Rnn(const std::string& name, std::span<const c10::IValue> arguments)
      : gates(name == "aten::lstm"  ? 4
              : name == "aten::gru" ? 3
                                    : 1),
        input(arguments[0].toTensor()),
        weights(arguments[2].toTensorVector()),
        biases(arguments[3].toBool()),
        layers(arguments[4].toInt()),
        directions(arguments[7].toBool() ? 2 : 1),
        batch_first(arguments[8].toBool()) {
    if (gates == 4) {
      states = arguments[1].toTensorVector();
    } else {
      states = {arguments[1].toTensor()};
    }
  }

  const int64_t gates;
  const at::Tensor input;
  const std::vector<at::Tensor> weights;
  const bool biases;
  const int64_t layers, directions;
  const bool batch_first;
  std::vector<at::Tensor> states;
};

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void require_size(const at::Tensor& tensor, at::IntArrayRef wanted, const char* name) {
  require(tensor.defined() && tensor.sizes() == wanted,
          fmt::format("{} has the size {} instead of {}", name,
                      tensor.defined() ? c10::str(tensor.sizes()) : "none", c10::str(wanted)));
}

}  // namespace

void check_rnn(const std::string& name, std::span<const c10::IValue> arguments) {
  const Rnn rnn(name, arguments);
  require(rnn.input.dim() == 3, "its input has not 3 dimensions");
  require(rnn.layers > 0 && rnn.layers < 10'000, fmt::format("it has {} layers", rnn.layers));
  const int64_t sets = rnn.layers * rnn.directions, count = static_cast<int64_t>(rnn.weights.size());
  const int64_t plain = rnn.biases ? 4 : 2;
  const bool projects = rnn.gates == 4 && count == sets * (plain + 1);
  require(projects || count == sets * plain,
          fmt::format("it has {} weights instead of {}", count, sets * plain));
  require(rnn.states.size() == (rnn.gates == 4 ? 2U : 1U),
          fmt::format("it has {} states", rnn.states.size()));
  require(rnn.weights[1].dim() == 2 && rnn.weights[1].size(0) % rnn.gates == 0, "its weights have no gates");
  const int64_t hidden = rnn.weights[1].size(0) / rnn.gates, out = rnn.weights[1].size(1);
  require(projects || out == hidden, "its weights have other sizes than its state");
  const int64_t each = plain + (projects ? 1 : 0);
  for (int64_t set = 0; set < sets; ++set) {
    const auto* weight = &rnn.weights[static_cast<size_t>(set * each)];
    const int64_t in = set < rnn.directions ? rnn.input.size(2) : out * rnn.directions;
    require_size(weight[0], {rnn.gates * hidden, in}, "a weight of its input");
    require_size(weight[1], {rnn.gates * hidden, out}, "a weight of its state");
    for (int64_t bias = 2; bias < plain; ++bias) require_size(weight[bias], {rnn.gates * hidden}, "a bias");
    if (projects) require_size(weight[plain], {out, hidden}, "a projection");
  }
  const int64_t rows = rnn.input.size(rnn.batch_first ? 0 : 1);
  require_size(rnn.states[0], {sets, rows, out}, "its state");
  if (rnn.states.size() > 1) require_size(rnn.states[1], {sets, rows, hidden}, "its cell state");
  for (const auto& weight : rnn.weights) {
    require(weight.scalar_type() == rnn.weights[0].scalar_type(), "its weights have different dtypes");
  }
  for (const auto& state : rnn.states) {
    require(state.scalar_type() == rnn.states[0].scalar_type(), "its states have different dtypes");
  }
}

}  // namespace lockstep::program
