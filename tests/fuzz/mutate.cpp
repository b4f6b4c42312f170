#include <lockstep/tests/fuzz/mutate.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>
#include <string_view>
#include <utility>

namespace lockstep::fuzz {
namespace {

// Limits of integer types, and values beyond them.
constexpr std::array<uint64_t, 17> kBinary = {
    0,          1,          2,          3,          7,
    8,          0x7f,       0x80,       0xff,       0x7fff,
    0xffff,     0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffffffffffff,
    1ull << 63, UINT64_MAX};
constexpr std::array<std::string_view, 34> kDecimal = {"0",
                                                       "-0",
                                                       "1",
                                                       "-1",
                                                       "2",
                                                       "1.9",
                                                       ".5",
                                                       "1e-3",
                                                       "127",
                                                       "128",
                                                       "256",
                                                       "1024",
                                                       "1025",
                                                       "32768",
                                                       "2147483647",
                                                       "2147483648",
                                                       "-2147483649",
                                                       "4294967295",
                                                       "4294967297",
                                                       "9007199254740993",
                                                       "9223372036854775807",
                                                       "9223372036854775808",
                                                       "-9223372036854775808",
                                                       "-9223372036854775809",
                                                       "18446744073709551615",
                                                       "18446744073709551616",
                                                       "1e20",
                                                       "1e299",
                                                       "1e308",
                                                       "-1e308",
                                                       "1e309",
                                                       "5e-324",
                                                       "2.2250738585072014e-308",
                                                       "1e-400"};

bool of_number(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '+' || c == 'e';
}

}  // namespace

Mutator::Mutator(uint64_t seed, std::vector<std::string> tokens, size_t most_bytes)
    : random_(seed), tokens_(std::move(tokens)), most_bytes_(most_bytes) {}

size_t Mutator::below(size_t count) { return count == 0 ? 0 : random_() % count; }

std::string Mutator::change(std::string input, const std::string& other) {
  for (size_t left = 1 + below(5); left > 0; --left) change_once(input, other);
  if (input.size() > most_bytes_) input.resize(most_bytes_);
  return input;
}

void Mutator::change_once(std::string& input, const std::string& other) {
  switch (below(8)) {
    case 0:
    case 1:
      return change_bytes(input);
    case 2:
      return move_parts(input, other);
    case 3:
      return put_binary_number(input);
    case 4:
    case 5:
      return put_decimal_number(input);
    case 6:
      return put_token(input);
    default:
      return repeat_part(input);
  }
}

void Mutator::change_bytes(std::string& input) {
  const size_t at = below(input.size());
  const auto byte = static_cast<char>(below(256));
  switch (below(4)) {
    case 0:
      if (!input.empty()) input[at] = static_cast<char>(input[at] ^ 1 << below(8));
      return;
    case 1:
      if (!input.empty()) input[at] = byte;
      return;
    case 2:
      input.insert(at, 1 + below(8), byte);
      return;
    default:
      input.erase(at, 1 + below(below(4) == 0 ? input.size() : 16));
  }
}

// A random part of up to `most` bytes.
std::string Mutator::part_of(const std::string& text, size_t most) {
  return text.substr(below(text.size()), 1 + below(most));
}

void Mutator::move_parts(std::string& input, const std::string& other) {
  const size_t at = below(input.size() + 1);
  switch (below(4)) {
    case 0:
      input.insert(at, part_of(input, 64));
      return;
    case 1:
      input.insert(at, part_of(other, 64));
      return;
    case 2: {
      const auto part = part_of(below(2) == 0 ? input : other, 64);
      input.replace(at, part.size(), part);
      return;
    }
    default:  // the beginning of one, the end of the other
      input = input.substr(0, at) + other.substr(below(other.size()));
  }
}

void Mutator::put_binary_number(std::string& input) {
  uint64_t value = kBinary[below(kBinary.size())];
  std::string bytes;
  for (const size_t width = size_t{1} << below(4); bytes.size() < width; value >>= 8) {
    bytes += static_cast<char>(value);
  }
  if (below(2) == 0) std::ranges::reverse(bytes);
  input.replace(below(input.size()), bytes.size(), bytes);
}

// Replaces a number in the text, if there is one.
void Mutator::put_decimal_number(std::string& input) {
  const auto number = kDecimal[below(kDecimal.size())];
  const auto from = input.begin() + static_cast<std::ptrdiff_t>(below(input.size()));
  const auto begin = std::find_if(from, input.end(), of_number);
  const auto end = std::find_if_not(begin, input.end(), of_number);
  input.replace(begin, end, number);
}

void Mutator::put_token(std::string& input) {
  if (tokens_.empty()) return;
  const auto& token = tokens_[below(tokens_.size())];
  const size_t at = below(input.size() + 1);
  input.replace(at, below(2) == 0 ? 0 : token.size(), token);
}

// Sometimes very often, to test recursion.
void Mutator::repeat_part(std::string& input) {
  const auto part = part_of(input, 8);
  const size_t times = size_t{1} << below(below(64) == 0 ? 18 : 6);
  std::string repeated;
  for (size_t i = 0; i < times && repeated.size() < most_bytes_; ++i) repeated += part;
  input.insert(below(input.size() + 1), repeated);
}

std::vector<std::string> parse_dictionary(const std::string& text) {
  std::vector<std::string> tokens;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto begin = line.find('"'), end = line.rfind('"');
    if (line.starts_with('#') || begin == end) continue;
    std::string token;
    for (size_t i = begin + 1; i < end; ++i) {
      if (line[i] == '\\' && line[++i] == 'x') {
        token += static_cast<char>(std::stoi(line.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        token += line[i];
      }
    }
    tokens.push_back(token);
  }
  return tokens;
}

}  // namespace lockstep::fuzz
