#include <lockstep/models/program/convert_argument.h>

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>
#include <fmt/format.h>

#include <algorithm>

#include <lockstep/models/program/format_error.h>

namespace lockstep::program {
namespace {

using c10::IValue;
using c10::TypeKind;
using Kind = ReadyArgument::Kind;

ReadyArgument constant(IValue value) { return {.constant = std::move(value)}; }
ReadyArgument value_of(int slot) { return {.kind = Kind::kValue, .slots = {slot}}; }

c10::MemoryFormat memory_format(MemoryFormat format) {
  switch (format) {
    case MemoryFormat::kContiguous:
      return c10::MemoryFormat::Contiguous;
    case MemoryFormat::kChannelsLast:
      return c10::MemoryFormat::ChannelsLast;
    case MemoryFormat::kChannelsLast3d:
      return c10::MemoryFormat::ChannelsLast3d;
    case MemoryFormat::kPreserve:
      break;
  }
  return c10::MemoryFormat::Preserve;
}

ReadyArgument ints_of(const std::vector<IntOrName>& given, const SlotOf& slot_of) {
  ReadyArgument list{.kind = Kind::kInts};
  for (const auto& one : given) {
    const auto* name = std::get_if<ValueName>(&one);
    list.slots.push_back(name ? slot_of(name->name) : -1);
    list.ints.push_back(name ? 0 : std::get<int64_t>(one));
  }
  if (std::ranges::any_of(list.slots, [](int slot) { return slot >= 0; })) return list;
  return constant(list.ints);
}

const c10::Type& without_optional(const c10::Type& type) {
  const auto* optional = type.castRaw<c10::OptionalType>();
  return optional ? *optional->getElementType() : type;
}

// Converts an argument to a type of the schema that is not optional. No result: it does not fit.
class Converter {
 public:
  Converter(const Argument& given, const c10::Type& type, const SlotOf& slot_of)
      : given_(given), type_(type), kind_(type.kind()), slot_of_(slot_of) {}

  std::optional<ReadyArgument> convert(int64_t expand_to) const {
    if (kind_ == TypeKind::ListType) return list(expand_to);
    if (const auto* name = std::get_if<ValueName>(&given_)) return named(slot_of_(name->name));
    if (const auto* whole = std::get_if<int64_t>(&given_)) return of_whole(*whole);
    if (const auto* number = std::get_if<double>(&given_)) {
      if (kind_ == TypeKind::FloatType || is_scalar()) return scalar(*number);
      return std::nullopt;
    }
    if (const auto* truth = std::get_if<bool>(&given_)) {
      if (kind_ == TypeKind::BoolType || is_scalar()) return scalar(*truth);
      return std::nullopt;
    }
    if (const auto* number = std::get_if<std::complex<double>>(&given_)) {
      if (is_scalar()) return scalar(c10::complex<double>(*number));
      return std::nullopt;
    }
    if (const auto* text = std::get_if<std::string>(&given_)) {
      if (kind_ == TypeKind::StringType) return constant(*text);
      return std::nullopt;
    }
    if (std::holds_alternative<DeviceName>(given_) && kind_ == TypeKind::DeviceObjType) {
      return ReadyArgument{.kind = Kind::kDevice};
    }
    return std::nullopt;
  }

 private:
  bool is_scalar() const { return kind_ == TypeKind::NumberType || kind_ == TypeKind::TensorType; }

  // A tensor's argument takes a number as a tensor without a type of its own.
  ReadyArgument scalar(const c10::Scalar& number) const {
    if (kind_ == TypeKind::TensorType) return constant(at::native::wrapped_scalar_tensor(number));
    return constant(IValue(number));
  }

  std::optional<ReadyArgument> of_whole(int64_t whole) const {
    if (kind_ == TypeKind::IntType) return constant(whole);
    if (kind_ == TypeKind::FloatType) return constant(static_cast<double>(whole));
    if (is_scalar()) return scalar(whole);
    return std::nullopt;
  }

  // A computed value has the type that it has: torch checks it at the call, but for numbers that stand for
  // tensors.
  std::optional<ReadyArgument> named(int slot) const {
    switch (kind_) {
      case TypeKind::TensorType:
        return ReadyArgument{.kind = Kind::kWrapped, .slots = {slot}};
      case TypeKind::NumberType:
      case TypeKind::FloatType:
      case TypeKind::IntType:
      case TypeKind::BoolType:
        return value_of(slot);
      default:
        return std::nullopt;
    }
  }

  std::optional<ReadyArgument> list(int64_t expand_to) const {
    const auto& element = *type_.castRaw<c10::ListType>()->getElementType();
    const bool optional = element.kind() == TypeKind::OptionalType;
    switch (without_optional(element).kind()) {
      case TypeKind::TensorType:
        return tensors(optional);
      case TypeKind::IntType:
        if (const auto* all = std::get_if<std::vector<int64_t>>(&given_)) return constant(*all);
        if (const auto* all = std::get_if<std::vector<IntOrName>>(&given_)) return ints_of(*all, slot_of_);
        if (const auto* whole = std::get_if<int64_t>(&given_); whole && expand_to > 0) {
          return constant(std::vector<int64_t>(static_cast<size_t>(expand_to), *whole));
        }
        return is_empty() ? std::optional(constant(std::vector<int64_t>())) : std::nullopt;
      case TypeKind::FloatType:
        if (const auto* all = std::get_if<std::vector<double>>(&given_)) return constant(*all);
        return is_empty() ? std::optional(constant(std::vector<double>())) : std::nullopt;
      case TypeKind::BoolType:
        return bools();
      default:
        return std::nullopt;
    }
  }

  // An empty list has no kind of its own.
  bool is_empty() const {
    return std::visit(
        [](const auto& value) {
          if constexpr (requires { value.empty(); }) {
            return !std::is_same_v<std::decay_t<decltype(value)>, std::string> && value.empty();
          } else {
            return false;
          }
        },
        given_);
  }

  std::optional<ReadyArgument> tensors(bool optional) const {
    ReadyArgument list{.kind = optional ? Kind::kOptionalTensors : Kind::kTensors};
    if (const auto* all = std::get_if<std::vector<ValueName>>(&given_)) {
      for (const auto& one : *all) list.slots.push_back(slot_of_(one.name));
      return list;
    }
    if (const auto* all = std::get_if<std::vector<std::optional<ValueName>>>(&given_)) {
      for (const auto& one : *all) {
        if (!one && !optional) return std::nullopt;
        list.slots.push_back(one ? slot_of_(one->name) : -1);
      }
      return list;
    }
    return is_empty() ? std::optional(list) : std::nullopt;
  }

  std::optional<ReadyArgument> bools() const {
    const auto* all = std::get_if<std::vector<bool>>(&given_);
    if (!all) return std::nullopt;
    c10::List<bool> list;
    for (const bool one : *all) list.push_back(one);
    return constant(list);
  }

  const Argument& given_;
  const c10::Type& type_;
  const TypeKind kind_;
  const SlotOf& slot_of_;
};

// Dtypes, layouts and memory formats. No result: it is none of these, and none is wanted.
std::optional<ReadyArgument> enumerated(const Argument& given, TypeKind kind, torch::ScalarType float_type) {
  if (const auto* type = std::get_if<ElementType>(&given); type && kind == TypeKind::ScalarTypeType) {
    const auto own = scalar_type(*type);
    return ReadyArgument{.kind = own == float_type ? Kind::kFloatType : Kind::kConstant, .constant = own};
  }
  if (const auto* format = std::get_if<MemoryFormat>(&given); format && kind == TypeKind::MemoryFormatType) {
    return constant(memory_format(*format));
  }
  if (std::holds_alternative<Strided>(given) && kind == TypeKind::LayoutType)
    return constant(c10::Layout::Strided);
  return std::nullopt;
}

bool is_enumerated(TypeKind kind) {
  return kind == TypeKind::ScalarTypeType || kind == TypeKind::LayoutType ||
         kind == TypeKind::MemoryFormatType;
}

}  // namespace

torch::ScalarType scalar_type(ElementType type) {
  using enum torch::ScalarType;
  constexpr torch::ScalarType kTypes[] = {Byte,          Char,  Short,   Int,         Long,
                                          Half,          Float, Double,  ComplexHalf, ComplexFloat,
                                          ComplexDouble, Bool,  BFloat16};
  const auto number = static_cast<size_t>(type) - 1;
  if (number >= std::size(kTypes))
    throw FormatError(fmt::format("has the dtype {}, which is unknown", number + 1));
  return kTypes[number];
}

ReadyArgument convert_argument(const Argument& given, const c10::Argument& wanted,
                               torch::ScalarType float_type, const SlotOf& slot_of) {
  const auto& type = *wanted.type();
  const bool optional = type.kind() == TypeKind::OptionalType;
  if (std::holds_alternative<None>(given) && (optional || type.kind() == TypeKind::TensorType))
    return constant({});
  const auto& real = without_optional(*wanted.real_type());
  auto converted = is_enumerated(real.kind())
                       ? enumerated(given, real.kind(), float_type)
                       : Converter(given, without_optional(type), slot_of).convert(wanted.N().value_or(0));
  if (!converted) {
    throw FormatError(fmt::format("gives the argument '{}' another value than {}", wanted.name(),
                                  wanted.real_type()->str()));
  }
  return *std::move(converted);
}

ReadyArgument convert_value(const Argument& given, const SlotOf& slot_of) {
  if (const auto* name = std::get_if<ValueName>(&given)) return value_of(slot_of(name->name));
  if (const auto* whole = std::get_if<int64_t>(&given)) return constant(*whole);
  if (const auto* number = std::get_if<double>(&given)) return constant(*number);
  if (const auto* truth = std::get_if<bool>(&given)) return constant(*truth);
  if (const auto* all = std::get_if<std::vector<IntOrName>>(&given)) return ints_of(*all, slot_of);
  if (const auto* all = std::get_if<std::vector<int64_t>>(&given)) return constant(*all);
  if (std::holds_alternative<None>(given)) return constant({});
  throw FormatError("gives a value of a kind that is not supported here");
}

}  // namespace lockstep::program
