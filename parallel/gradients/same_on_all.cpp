#include <lockstep/parallel/gradients/same_on_all.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include <lockstep/parallel/collectives/gather_bytes.h>
#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/support/error.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// The next line of the text, which loses it.
std::string_view take_line(std::string_view& text) {
  const auto line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

// The first lines of two different texts that differ, of each one.
std::pair<std::string_view, std::string_view> first_difference(std::string_view first,
                                                               std::string_view other) {
  auto lines = std::pair(take_line(first), take_line(other));
  while (lines.first == lines.second && !(first.empty() && other.empty())) {
    lines = {take_line(first), take_line(other)};
  }
  return lines;
}

std::string_view or_nothing(std::string_view line) { return line.empty() ? "nothing more" : line; }

// texts: of each rank or process. whose: "rank".
void require_same(const std::vector<std::string>& texts, std::string_view whose, std::string_view what,
                  std::string_view hint) {
  for (size_t i = 1; i < texts.size(); ++i) {
    if (texts[i] == texts.front()) continue;
    const auto [first, other] = first_difference(texts.front(), texts[i]);
    throw UsageError(fmt::format("the {} differ: {} {} has {} where {} 0 has {}", what, whose, i,
                                 or_nothing(other), whose, or_nothing(first)),
                     std::string(hint));
  }
}

// Returns the texts of all ranks.
std::vector<std::string> gather_texts(const std::string& own, Endpoint& endpoint) {
  const auto bytes = torch::empty({static_cast<int64_t>(own.size())}, torch::kUInt8);
  std::memcpy(bytes.mutable_data_ptr(), own.data(), own.size());
  std::vector<std::string> texts;
  for (const auto& other : gather_bytes(bytes, endpoint)) {
    texts.emplace_back(static_cast<const char*>(other.const_data_ptr()), static_cast<size_t>(other.numel()));
  }
  return texts;
}

}  // namespace

std::vector<std::string> tensor_lines(const torch::nn::Module& module) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor, const char* remark) {
    const auto strides =
        tensor.is_contiguous() ? "" : fmt::format(", strides [{}]", fmt::join(tensor.strides(), ", "));
    lines.push_back(fmt::format("{} [{}] {}{}{}", name, fmt::join(tensor.sizes(), ", "),
                                torch::toString(tensor.scalar_type()), strides, remark));
  };
  for (const auto& [name, param] : distinct_parameters(module)) {
    add(name, param, param.requires_grad() ? "" : ", frozen");
  }
  for (const auto& [name, buffer] : distinct_buffers(module)) add(name, buffer, "");
  return lines;
}

void require_same_on_ranks(const std::vector<std::string>& lines, Endpoint& endpoint, std::string_view what,
                           std::string_view hint) {
  if (endpoint.world_size() == 1) return;
  require_same(gather_texts(joined(lines), endpoint), "rank", what, hint);
}

void require_same_modules(const torch::nn::Module& module, Endpoint& endpoint) {
  require_same_on_ranks(tensor_lines(module), endpoint, "models",
                        "build the same model on all ranks, with the same parameters frozen");
}

void require_same_in_processes(const std::vector<std::string>& lines, ProcessGroup& group,
                               std::string_view what, std::string_view hint) {
  require_same(group.gather(joined(lines)), "process", what, hint);
}

}  // namespace lockstep
