#include <lockstep/models/program/guards.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include <lockstep/models/program/format_error.h>

namespace lockstep::program {
namespace {

// A size that a condition names: its symbol, or the number that it always has.
struct NamedSize {
  int symbol = -1;
  int64_t number = -1;
};

std::optional<int64_t> number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr int64_t kMost = int64_t{1} << 62;  // the next one is a number, too
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > kMost)
    return std::nullopt;
  return number;
}

std::optional<NamedSize> find_size(const ProgramGraph& graph, const std::string& input, int64_t dimension) {
  const auto found = std::ranges::find(graph.inputs, input, &UserInput::name);
  if (found == graph.inputs.end() || dimension < 0) return std::nullopt;
  const auto place = static_cast<size_t>(dimension);
  if (place >= found->sizes.size()) return std::nullopt;
  return NamedSize{found->sizes[place].symbol, found->sizes[place].number};
}

// Returns false for a condition that is no bound.
bool narrow(Range& range, std::string_view comparison, int64_t number) {
  const auto at_least = [&](int64_t least) { range.least = std::max(range.least, least); };
  const auto at_most = [&](int64_t most) { range.most = std::min(range.most, most); };
  if (comparison == ">") return at_least(number + 1), true;
  if (comparison == ">=") return at_least(number), true;
  if (comparison == "<") return at_most(number - 1), true;
  if (comparison == "<=") return at_most(number), true;
  if (comparison == "==") return at_least(number), at_most(number), true;
  if (comparison != "!=" || number > 1) return false;  // a number in the middle
  return at_least(number + 1), true;
}

// Takes "L['x'].size()[0]" from the front.
std::optional<NamedSize> take_size(std::string_view& text, const ProgramGraph& graph) {
  constexpr std::string_view kBegin = "L['", kMiddle = "'].size()[";
  const auto middle = text.find(kMiddle),
             end = text.find(']', middle == text.npos ? middle : middle + kMiddle.size());
  if (!text.starts_with(kBegin) || end == text.npos) return std::nullopt;
  const auto input = text.substr(kBegin.size(), middle - kBegin.size());
  const auto dimension = number_of(text.substr(middle + kMiddle.size(), end - middle - kMiddle.size()));
  text.remove_prefix(end + 1);
  return dimension ? find_size(graph, std::string(input), *dimension) : std::nullopt;
}

// Returns true if all sizes that the condition names are numbers of rows.
bool is_of_rows(std::string_view guard, const ProgramGraph& graph) {
  bool any = false;
  for (auto next = guard.find("L['"); next != guard.npos; next = guard.find("L['")) {
    guard.remove_prefix(next);
    const auto size = take_size(guard, graph);
    if (!size || size->symbol < 0 || size->symbol != graph.rows_symbol) return false;
    any = true;
  }
  return any;
}

// Returns false for a condition that is neither "size comparison number" nor "size == size".
bool apply_guard(std::string_view guard, ProgramGraph& graph) {
  const auto size = take_size(guard, graph);
  if (!size || !guard.starts_with(' ')) return false;
  guard.remove_prefix(1);
  const auto space = guard.find(' ');
  if (space == guard.npos) return false;
  const auto comparison = guard.substr(0, space);
  guard.remove_prefix(space + 1);
  if (const auto number = number_of(guard)) {
    if (size->symbol < 0) return size->number >= 0;  // the exporter has checked it
    return narrow(graph.symbols[static_cast<size_t>(size->symbol)], comparison, *number);
  }
  const auto other = comparison == "==" ? take_size(guard, graph) : std::nullopt;
  return other && guard.empty() && size->symbol == other->symbol && size->number == other->number;
}

}  // namespace

void apply_guards(const std::vector<std::string>& guards, bool rows_were_compared, ProgramGraph& graph) {
  for (const auto& guard : guards) {
    if (rows_were_compared && is_of_rows(guard, graph)) continue;
    if (apply_guard(guard, graph)) continue;
    throw FormatError(fmt::format("holds only where {}, which lockstep does not check", guard.substr(0, 200)),
                      "export it with a fixed size there, or without the condition in the Python code");
  }
}

}  // namespace lockstep::program
