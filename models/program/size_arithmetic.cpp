#include <lockstep/models/program/size_arithmetic.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>

namespace lockstep::program {
namespace {

using c10::IValue;
using Numbers = c10::ArrayRef<IValue>;

bool any_real(Numbers numbers) {
  return std::any_of(numbers.begin(), numbers.end(), [](const IValue& number) { return number.isDouble(); });
}

// Python's True is 1.
int64_t whole(const IValue& number) { return number.isBool() ? number.toBool() : number.toInt(); }
double real(const IValue& number) {
  return number.isDouble() ? number.toDouble() : static_cast<double>(whole(number));
}

// result: a reference, since it is computed together with `overflow`.
int64_t not_beyond(bool overflow, const int64_t& result) {
  if (overflow) throw std::runtime_error("a size needs more than 64 bits");
  return result;
}

int64_t whole_of(double number) {
  constexpr double kEnd = 9223372036854775808.;  // 2^63
  const bool fits = number >= -kEnd && number < kEnd;
  return not_beyond(!fits, fits ? static_cast<int64_t>(number) : 0);
}

void refuse_zero(bool zero) {
  if (zero) throw std::runtime_error("a size is divided by zero");
}

// Rounds down, as Python's // does.
int64_t floor_division(int64_t a, int64_t b) {
  refuse_zero(b == 0);
  if (b == -1) {
    int64_t result = 0;
    return not_beyond(__builtin_sub_overflow(int64_t{0}, a, &result), result);
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (int64_t i = 0; i < exponent; ++i) {
    int64_t next = 0;
    result = not_beyond(__builtin_mul_overflow(result, base, &next), next);
  }
  return result;
}

IValue add(Numbers x) {
  if (any_real(x)) return real(x[0]) + real(x[1]);
  int64_t sum = 0;
  return not_beyond(__builtin_add_overflow(whole(x[0]), whole(x[1]), &sum), sum);
}
IValue subtract(Numbers x) {
  if (any_real(x)) return real(x[0]) - real(x[1]);
  int64_t difference = 0;
  return not_beyond(__builtin_sub_overflow(whole(x[0]), whole(x[1]), &difference), difference);
}
IValue multiply(Numbers x) {
  if (any_real(x)) return real(x[0]) * real(x[1]);
  int64_t product = 0;
  return not_beyond(__builtin_mul_overflow(whole(x[0]), whole(x[1]), &product), product);
}
IValue divide(Numbers x) {
  refuse_zero(real(x[1]) == 0);
  return real(x[0]) / real(x[1]);
}
IValue divide_down(Numbers x) {
  if (!any_real(x)) return floor_division(whole(x[0]), whole(x[1]));
  refuse_zero(real(x[1]) == 0);
  return std::floor(real(x[0]) / real(x[1]));
}
IValue remainder(Numbers x) {
  if (!any_real(x)) {
    const auto a = whole(x[0]), b = whole(x[1]);
    refuse_zero(b == 0);
    return b == -1 ? 0 : a - b * floor_division(a, b);
  }
  const double a = real(x[0]), b = real(x[1]);
  refuse_zero(b == 0);
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
IValue to_power(Numbers x) {
  if (any_real(x) || whole(x[1]) < 0) return std::pow(real(x[0]), real(x[1]));
  return power(whole(x[0]), whole(x[1]));
}
IValue negate(Numbers x) {
  if (any_real(x)) return -real(x[0]);
  int64_t result = 0;
  return not_beyond(__builtin_sub_overflow(int64_t{0}, whole(x[0]), &result), result);
}
IValue absolute(Numbers x) { return real(x[0]) < 0 ? negate(x) : x[0]; }

template <class Compare>
bool compare(Numbers x, Compare holds) {
  return any_real(x) ? holds(real(x[0]), real(x[1])) : holds(whole(x[0]), whole(x[1]));
}
IValue equal(Numbers x) {
  return compare(x, [](auto a, auto b) { return a == b; });
}
IValue not_equal(Numbers x) {
  return compare(x, [](auto a, auto b) { return a != b; });
}
IValue less(Numbers x) {
  return compare(x, [](auto a, auto b) { return a < b; });
}
IValue at_most(Numbers x) {
  return compare(x, [](auto a, auto b) { return a <= b; });
}
IValue greater(Numbers x) {
  return compare(x, [](auto a, auto b) { return a > b; });
}
IValue at_least(Numbers x) {
  return compare(x, [](auto a, auto b) { return a >= b; });
}

IValue both(Numbers x) {
  if (x[0].isBool() && x[1].isBool()) return x[0].toBool() && x[1].toBool();
  return whole(x[0]) & whole(x[1]);
}
IValue either(Numbers x) {
  if (x[0].isBool() && x[1].isBool()) return x[0].toBool() || x[1].toBool();
  return whole(x[0]) | whole(x[1]);
}
IValue truth_not(Numbers x) { return !x[0].toBool(); }
IValue larger(Numbers x) {
  return compare(x, [](auto a, auto b) { return a >= b; }) ? x[0] : x[1];
}
IValue smaller(Numbers x) {
  return compare(x, [](auto a, auto b) { return a <= b; }) ? x[0] : x[1];
}
IValue as_real(Numbers x) { return real(x[0]); }
IValue truncated(Numbers x) { return x[0].isDouble() ? whole_of(std::trunc(real(x[0]))) : whole(x[0]); }
IValue floored(Numbers x) { return x[0].isDouble() ? whole_of(std::floor(real(x[0]))) : whole(x[0]); }
IValue raised(Numbers x) { return x[0].isDouble() ? whole_of(std::ceil(real(x[0]))) : whole(x[0]); }
IValue rounded(Numbers x) { return x[0].isDouble() ? whole_of(std::nearbyint(real(x[0]))) : whole(x[0]); }
IValue shift_left(Numbers x) {
  const auto by = whole(x[1]);
  int64_t result = 0;
  const bool overflow = by < 0 || by > 62 || __builtin_mul_overflow(whole(x[0]), int64_t{1} << by, &result);
  return not_beyond(overflow, result);
}
IValue shift_right(Numbers x) {
  const auto by = whole(x[1]);
  return not_beyond(by < 0, whole(x[0]) >> std::min<int64_t>(by, 63));
}
IValue sum(Numbers x) {
  int64_t total = 0;
  for (const int64_t number : x[0].toIntVector())
    total = not_beyond(__builtin_add_overflow(total, number, &total), total);
  return total;
}
IValue root(Numbers x) { return std::sqrt(real(x[0])); }
IValue same(Numbers x) { return x[0]; }
IValue choose(Numbers x) { return x[0].toBool() ? x[1] : x[2]; }

struct Known {
  size_t arguments;
  SizeOperation compute;
};

}  // namespace

SizeOperation size_operation(const std::string& target, size_t arguments) {
  static const std::map<std::string, Known> kKnown{
      {"_operator.add", {2, add}},
      {"_operator.sub", {2, subtract}},
      {"_operator.mul", {2, multiply}},
      {"_operator.truediv", {2, divide}},
      {"_operator.floordiv", {2, divide_down}},
      {"_operator.mod", {2, remainder}},
      {"_operator.pow", {2, to_power}},
      {"_operator.neg", {1, negate}},
      {"_operator.pos", {1, same}},
      {"_operator.abs", {1, absolute}},
      {"_operator.eq", {2, equal}},
      {"_operator.ne", {2, not_equal}},
      {"_operator.lt", {2, less}},
      {"_operator.le", {2, at_most}},
      {"_operator.gt", {2, greater}},
      {"_operator.ge", {2, at_least}},
      {"_operator.and_", {2, both}},
      {"_operator.or_", {2, either}},
      {"_operator.lshift", {2, shift_left}},
      {"_operator.rshift", {2, shift_right}},
      {"torch.sym_sum", {1, sum}},
      {"torch.sym_not", {1, truth_not}},
      {"torch.sym_max", {2, larger}},
      {"torch.sym_min", {2, smaller}},
      {"torch.sym_float", {1, as_real}},
      {"torch.sym_int", {1, truncated}},
      {"torch.sym_ite", {3, choose}},
      {"torch._sym_sqrt", {1, root}},
      {"torch.sym_sqrt", {1, root}},
      {"math.sqrt", {1, root}},
      {"math.trunc", {1, truncated}},
      {"math.floor", {1, floored}},
      {"math.ceil", {1, raised}},
      {"builtins.round", {1, rounded}},
  };
  const auto known = kKnown.find(target);
  return known == kKnown.end() || known->second.arguments != arguments ? nullptr : known->second.compute;
}

}  // namespace lockstep::program
