#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stdexcept>

#include <lockstep/models/program/interpreter.h>

namespace lockstep::program {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// Overload "input": input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first.
// Overload "data", of packed sequences: data, batch_sizes, hx, and the same up to bidirectional.
struct Rnn {
  Rnn(const std::string& name, std::span<const c10::IValue> arguments)
      : gates(name == "aten::lstm"  ? 4
              : name == "aten::gru" ? 3
                                    : 1),
        input(arguments[0].toTensor()) {
    const bool packed = arguments[3].isTensorList();
    const auto rest = arguments.subspan(packed ? 2 : 1);
    states = gates == 4 ? rest[0].toTensorVector() : std::vector{rest[0].toTensor()};
    weights = rest[1].toTensorVector();
    biases = rest[2].toBool();
    layers = rest[3].toInt();
    directions = rest[6].toBool() ? 2 : 1;
    require(input.dim() == (packed ? 2 : 3), fmt::format("its input has {} dimensions", input.dim()));
    rows = packed ? rows_of_packed(arguments[1].toTensor()) : input.size(rest[7].toBool() ? 0 : 1);
  }

  // How many sequences there are: all of them have a first element.
  int64_t rows_of_packed(const at::Tensor& sizes) const {
    require(sizes.dim() == 1 && sizes.scalar_type() == at::kLong && sizes.is_cpu() && sizes.numel() > 0,
            "its batch sizes are no whole numbers on the CPU");
    const auto steps = sizes.contiguous();
    const std::span all(steps.const_data_ptr<int64_t>(), static_cast<size_t>(steps.numel()));
    int64_t left = input.size(0), most = left;
    for (size_t i = 0; i < all.size(); ++i) {
      most = std::min(most, left);
      require(all[i] > 0 && all[i] <= most,
              fmt::format("its batch sizes have {} in step {}, where 1 to {} fit", all[i], i + 1, most));
      most = all[i];
      left -= all[i];
    }
    require(left == 0, fmt::format("its batch sizes leave {} of {} rows of its data", left, input.size(0)));
    return all[0];
  }

  const int64_t gates;
  const at::Tensor input;
  std::vector<at::Tensor> states, weights;
  bool biases = false;
  int64_t layers = 0, directions = 1, rows = 0;
};

void require_size(const at::Tensor& tensor, at::IntArrayRef wanted, const char* name) {
  require(tensor.defined() && tensor.sizes() == wanted,
          fmt::format("{} has the size {} instead of {}", name,
                      tensor.defined() ? c10::str(tensor.sizes()) : "none", c10::str(wanted)));
}

}  // namespace

void check_rnn(const std::string& name, std::span<const c10::IValue> arguments) {
  const Rnn rnn(name, arguments);
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
    const int64_t in = set < rnn.directions ? rnn.input.size(-1) : out * rnn.directions;
    require_size(weight[0], {rnn.gates * hidden, in}, "a weight of its input");
    require_size(weight[1], {rnn.gates * hidden, out}, "a weight of its state");
    for (int64_t bias = 2; bias < plain; ++bias) require_size(weight[bias], {rnn.gates * hidden}, "a bias");
    if (projects) require_size(weight[plain], {out, hidden}, "a projection");
  }
  require_size(rnn.states[0], {sets, rnn.rows, out}, "its state");
  if (rnn.states.size() > 1) require_size(rnn.states[1], {sets, rnn.rows, hidden}, "its cell state");
  for (const auto& weight : rnn.weights) {
    require(weight.scalar_type() == rnn.weights[0].scalar_type(), "its weights have different dtypes");
  }
  for (const auto& state : rnn.states) {
    require(state.scalar_type() == rnn.states[0].scalar_type(), "its states have different dtypes");
  }
}

}  // namespace lockstep::program
