#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/json_value.h>
#include <lockstep/models/program/read_graph.h>
#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

ElementType element_type(const Json& json) {
  const auto number = json.integer();
  if (number < static_cast<int>(ElementType::kUint8) || number > static_cast<int>(ElementType::kBfloat16)) {
    throw FormatError(
        fmt::format("has the dtype {} (numbers of the file; 1 to 13 are known: uint8 to bfloat16)", number));
  }
  return static_cast<ElementType>(number);
}

Argument memory_format(const Json& json) {
  const auto number = json.integer();
  if (number < 1 || number > 4)
    throw FormatError(fmt::format("has the memory format {} (1 to 4 are known)", number));
  return static_cast<MemoryFormat>(number);
}

Argument layout(const Json& json) {
  constexpr int64_t kStrided = 7;
  if (json.integer() != kStrided) {
    throw FormatError(fmt::format("has the layout {} where 7 (strided) is expected", json.integer()));
  }
  return Strided();
}

Argument device(const Json& json) {
  const auto& type = json.at("type").text();
  if (type != "cpu" && type != "cuda") {
    throw FormatError(fmt::format("has the device {} (cpu and cuda are known)", in_quotes(type)),
                      "export it on the CPU");
  }
  return DeviceName{type};
}

ValueName tensor(const Json& json) { return {json.at("name").text()}; }

std::optional<ValueName> optional_tensor(const Json& json) {
  const auto [kind, value] = json.only();
  if (kind == "as_none") return std::nullopt;
  if (kind != "as_tensor")
    throw FormatError(fmt::format("has a {} where a tensor is expected", in_quotes(kind)));
  return tensor(value);
}

// A number or truth value that is known (its key is `known`), or the name of one that is computed.
template <class Read>
Argument known_or_name(const Json& json, const char* known, const Read& read) {
  const auto [kind, value] = json.only();
  if (kind == "as_name") return ValueName{value.text()};
  if (kind != known) throw FormatError(fmt::format("has {} where {} is expected", in_quotes(kind), known));
  return read(value);
}

template <class T, class Read>
Argument list_of(const Json& json, const Read& read) {
  std::vector<T> values;
  values.reserve(json.list().size());
  for (const auto& value : json.list()) values.push_back(read(value));
  return values;
}

Argument sym_ints(const Json& json) {
  return list_of<IntOrName>(json, [](const Json& element) -> IntOrName {
    const auto [kind, value] = element.only();
    if (kind == "as_name") return ValueName{value.text()};
    if (kind != "as_int") throw FormatError(fmt::format("has {} in a list of integers", in_quotes(kind)));
    return value.integer();
  });
}

Argument region(const Json& json) {
  const auto& graph = json.at("graph");
  std::vector<std::string> inputs;
  for (const auto& input : graph.at("inputs").list()) {
    const auto argument = read_argument(input);
    const auto* value = std::get_if<ValueName>(&argument);
    if (!value) throw FormatError("has a region with an input that is no value");
    inputs.push_back(value->name);
  }
  return std::make_shared<const Graph>(read_graph(graph, std::move(inputs)));
}

struct Reader {
  std::string_view kind;
  Argument (*read)(const Json& json);
};

constexpr auto kWhole = [](const Json& json) -> int64_t { return json.integer(); };
constexpr auto kNumber = [](const Json& json) -> double { return json.number(); };
constexpr auto kTruth = [](const Json& json) -> bool { return json.truth(); };

const std::array<Reader, 23> kReaders{{
    {"as_none", [](const Json&) -> Argument { return None(); }},
    {"as_tensor", [](const Json& json) -> Argument { return tensor(json); }},
    {"as_tensors", [](const Json& json) { return list_of<ValueName>(json, tensor); }},
    {"as_optional_tensor",
     [](const Json& json) {
       const auto value = optional_tensor(json);
       return value ? Argument(*value) : Argument(None());
     }},
    {"as_optional_tensors",
     [](const Json& json) { return list_of<std::optional<ValueName>>(json, optional_tensor); }},
    {"as_int", [](const Json& json) -> Argument { return json.integer(); }},
    {"as_ints", [](const Json& json) { return list_of<int64_t>(json, kWhole); }},
    {"as_float", [](const Json& json) -> Argument { return json.number(); }},
    {"as_floats", [](const Json& json) { return list_of<double>(json, kNumber); }},
    {"as_bool", [](const Json& json) -> Argument { return json.truth(); }},
    {"as_bools", [](const Json& json) { return list_of<bool>(json, kTruth); }},
    {"as_string", [](const Json& json) -> Argument { return json.text(); }},
    {"as_sym_int", [](const Json& json) { return known_or_name(json, "as_int", kWhole); }},
    {"as_sym_float", [](const Json& json) { return known_or_name(json, "as_float", kNumber); }},
    {"as_sym_bool", [](const Json& json) { return known_or_name(json, "as_bool", kTruth); }},
    {"as_sym_ints", sym_ints},
    {"as_complex",
     [](const Json& json) -> Argument {
       return std::complex<double>(json.at("real").number(), json.at("imag").number());
     }},
    {"as_scalar_type", [](const Json& json) -> Argument { return element_type(json); }},
    {"as_memory_format", memory_format},
    {"as_layout", layout},
    {"as_device", device},
    {"as_graph", region},
    {"as_strings",
     [](const Json&) -> Argument {
       throw FormatError("takes a list of texts, which lockstep does not support");
     }},
}};

// Returns the symbol of "Symbol('s77', positive=True, integer=True)", or an empty text.
std::string symbol_of(const std::string& expression) {
  constexpr std::string_view kBegin = "Symbol('";
  if (!expression.starts_with(kBegin) || expression.find(')') != expression.size() - 1) return {};
  const auto end = expression.find('\'', kBegin.size());
  if (end == expression.npos) return {};
  return expression.substr(kBegin.size(), end - kBegin.size());
}

std::vector<Size> sizes(const Json& json) {
  std::vector<Size> all;
  for (const auto& size : json.list()) all.push_back(read_size(size));
  return all;
}

}  // namespace

Argument read_argument(const Json& json) {
  const auto [kind, value] = json.only();
  const auto reader = std::ranges::find(kReaders, kind, &Reader::kind);
  if (reader == kReaders.end()) {
    throw FormatError(fmt::format("takes an argument {}, which lockstep does not support", in_quotes(kind)));
  }
  return reader->read(value);
}

Size read_size(const Json& json) {
  const auto [kind, value] = json.only();
  if (kind == "as_int") {
    if (value.integer() < 0) throw FormatError(fmt::format("has a size of {}", value.integer()));
    return {.number = value.integer()};
  }
  if (kind != "as_expr") throw FormatError(fmt::format("has a size {}", in_quotes(kind)));
  const auto& expression = value.at("expr_str").text();
  auto symbol = symbol_of(expression);
  if (symbol.empty()) return {.expression = expression};
  return {.symbol = std::move(symbol)};
}

TensorMeta read_tensor_meta(const Json& json) {
  TensorMeta meta{.dtype = element_type(json.at("dtype")),
                  .sizes = sizes(json.at("sizes")),
                  .strides = sizes(json.at("strides")),
                  .storage_offset = read_size(json.at("storage_offset")),
                  .requires_grad = json.at("requires_grad").truth()};
  layout(json.at("layout"));
  if (meta.sizes.size() != meta.strides.size()) {
    throw FormatError(
        fmt::format("has a tensor of {} sizes and {} strides", meta.sizes.size(), meta.strides.size()));
  }
  return meta;
}

std::string tensor_name(const Argument& argument, const std::string& what) {
  const auto* value = std::get_if<ValueName>(&argument);
  if (!value) throw FormatError(what + " is no tensor");
  return value->name;
}

}  // namespace lockstep::program
