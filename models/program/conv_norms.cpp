#include <lockstep/models/program/conv_norms.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <lockstep/models/program/ready_arguments.h>

namespace lockstep::program {
namespace {

// Operations that take channels_last as any other format, whose results are in that of their arguments and
// share no memory with them.
constexpr std::array<std::string_view, 10> kOfAnyFormat = {"aten::adaptive_avg_pool2d",
                                                           "aten::add",
                                                           "aten::avg_pool2d",
                                                           "aten::batch_norm",
                                                           "aten::cat",
                                                           "aten::conv2d",
                                                           "aten::mean",
                                                           "aten::max_pool2d",
                                                           "aten::relu",
                                                           "aten::sym_size"};

// Their kernels take so many channels at once.
constexpr int64_t kChannels = 16;

bool is_relu(const ReadyNode& node) { return node.name == "aten::relu" || node.name == "aten::relu_"; }

bool is_one(const ReadyArgument& argument) {
  const auto& constant = argument.constant;
  return argument.kind == ReadyArgument::Kind::kConstant && constant.isScalar() &&
         constant.toScalar().equal(1);
}

bool are_numbers(const ReadyArgument& argument) {
  return argument.kind == ReadyArgument::Kind::kConstant && argument.constant.isIntList();
}

class Finder {
 public:
  Finder(ReadyGraph& graph, const std::vector<const TensorMeta*>& metas, const SourceOf& source_of)
      : graph_(graph), metas_(metas), source_of_(source_of), slots_(static_cast<size_t>(graph.slots)) {}

  int64_t find() {
    note_uses();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].norm >= 0) match(i);
    }
    if (!graph_.conv_norms.empty()) find_restored();
    return static_cast<int64_t>(graph_.conv_norms.size());
  }

 private:
  struct Slot {
    int uses = 0;
    std::optional<size_t> made_by = {}, used_by = {};  // nodes; the last of several
  };

  Slot& slot(int number) { return slots_[static_cast<size_t>(number)]; }
  const TensorMeta* meta(int number) const { return metas_[static_cast<size_t>(number)]; }

  void note_uses() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const auto& argument : graph_.nodes[i].arguments) note(argument, i);
      for (const auto& result : graph_.nodes[i].results) {
        for (const int number : result.slots) {
          if (number >= 0) slot(number).made_by = i;
        }
      }
    }
    for (const auto& output : graph_.outputs) note(output, std::nullopt);
  }

  void note(const ReadyArgument& argument, std::optional<size_t> node) {
    for (const int number : argument.slots) {
      if (number < 0) continue;
      ++slot(number).uses;
      slot(number).used_by = node;
    }
  }

  // The node that alone uses the node's one result.
  std::optional<size_t> only_user(size_t node) {
    const auto& results = graph_.nodes[node].results;
    if (results.size() != 1 || results[0].is_list || results[0].slots[0] < 0) return std::nullopt;
    const auto& result = slot(results[0].slots[0]);
    return result.uses == 1 ? result.used_by : std::nullopt;
  }

  bool is_conv(size_t node) const {
    const auto& conv = graph_.nodes[node];
    return conv.name == "aten::conv2d" &&
           std::all_of(conv.arguments.begin() + 3, conv.arguments.begin() + 6, are_numbers);
  }

  // A norm whose tensors are inputs of the graph, of channels that the kernels take.
  bool is_norm(const ReadyNode& norm) const {
    const auto is_input = [&](const ReadyArgument& argument) { return !source_of_(argument).empty(); };
    if (!is_constant(norm.arguments[5], true) ||
        !std::all_of(norm.arguments.begin() + 1, norm.arguments.begin() + 5, is_input)) {
      return false;
    }
    const auto* weight = meta(norm.arguments[1].slots[0]);
    return weight && weight->dtype == ElementType::kFloat32 && weight->sizes.size() == 1 &&
           weight->sizes[0].number % kChannels == 0;
  }

  // Which argument of the addition is added to the other, which is the norm's result; nothing for another
  // operation, and where shapes differ.
  std::optional<int> residual_of(const ReadyNode& addition, int normalised) const {
    const bool in_place = addition.name == "aten::add_";
    if ((!in_place && addition.name != "aten::add") || !is_one(addition.arguments[2])) return std::nullopt;
    const int own = addition.arguments[0].slots == std::vector{normalised} ? 0 : 1;
    const auto& other = addition.arguments[static_cast<size_t>(1 - own)];
    if ((in_place && own == 1) || !is_value(other)) return std::nullopt;
    const auto *a = meta(normalised), *b = meta(other.slots[0]);
    if (!a || !b || a->sizes != b->sizes || a->dtype != b->dtype) return std::nullopt;
    return 1 - own;
  }

  void match(size_t norm) {
    const auto& node = graph_.nodes[norm];
    if (!is_norm(node) || !is_value(node.arguments[0])) return;
    const auto conv = slot(node.arguments[0].slots[0]).made_by;
    auto relu = only_user(norm);
    if (!conv || !relu || !is_conv(*conv) || only_user(*conv) != norm) return;
    ConvNormRelu layers{.norm = node.norm,
                        .weight = node.arguments[1].slots[0],
                        .takes_bias = !source_of_(graph_.nodes[*conv].arguments[2]).empty()};
    std::optional<size_t> addition;
    if (const auto residual = residual_of(graph_.nodes[*relu], node.results[0].slots[0])) {
      addition = relu;
      layers.residual = *residual;
      layers.apart = has_norms(norm + 1, *addition);
      relu = only_user(*addition);
    }
    const auto* result = relu ? meta(graph_.nodes[*relu].results[0].slots[0]) : nullptr;
    if (!relu || !is_relu(graph_.nodes[*relu]) || !result || result->sizes.size() != 4) return;
    const auto place = static_cast<int>(graph_.conv_norms.size());
    const auto join = [&](size_t member, LayerPart part) {
      graph_.nodes[member].part = part;
      graph_.nodes[member].layers = place;
    };
    join(*conv, LayerPart::kConv);
    join(norm, LayerPart::kNorm);
    if (addition) join(*addition, LayerPart::kAddition);
    join(*relu, LayerPart::kRelu);
    graph_.conv_norms.push_back(layers);
  }

  bool has_norms(size_t first, size_t last) const {
    return std::any_of(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(first),
                       graph_.nodes.begin() + static_cast<std::ptrdiff_t>(last),
                       [](const ReadyNode& node) { return node.norm >= 0 || node.body; });
  }

  // Results of lockstep's kernels are in channels_last. Python's are contiguous unless the file says
  // otherwise, and an operation such as view() depends on it.
  void find_restored() {
    for (auto& node : graph_.nodes) {
      if (node.part == LayerPart::kRelu) {
        const int result = node.results[0].slots[0];
        const auto& strides = meta(result)->strides;
        if (strides.size() != 4 || strides[1].number != 1) moved_.push_back(result);
      } else if (node.part != LayerPart::kNone) {
        continue;
      } else if (std::ranges::find(kOfAnyFormat, node.name) == kOfAnyFormat.end()) {
        for (const auto& argument : node.arguments) restore(argument, node.restored);
      } else if (std::ranges::any_of(node.arguments, [&](const auto& one) { return is_moved(one); })) {
        for (const auto& result : node.results) {
          std::ranges::copy_if(result.slots, std::back_inserter(moved_),
                               [](int number) { return number >= 0; });
        }
      }
    }
    for (const auto& output : graph_.outputs) restore(output, graph_.restored);
  }

  bool is_moved(const ReadyArgument& argument) const {
    return std::ranges::any_of(argument.slots,
                               [&](int number) { return std::ranges::find(moved_, number) != moved_.end(); });
  }

  void restore(const ReadyArgument& argument, std::vector<int>& restored) {
    for (const int number : argument.slots) {
      if (std::erase(moved_, number) > 0) restored.push_back(number);
    }
  }

  ReadyGraph& graph_;
  const std::vector<const TensorMeta*>& metas_;
  const SourceOf& source_of_;
  std::vector<Slot> slots_;
  std::vector<int> moved_;  // slots whose tensors are in channels_last, unlike Python's
};

}  // namespace

int64_t find_conv_norms(ReadyGraph& graph, const std::vector<const TensorMeta*>& metas,
                        const SourceOf& source_of) {
  return Finder(graph, metas, source_of).find();
}

}  // namespace lockstep::program
