// Mutates inputs of fuzzers. The same seed gives the same mutations.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lockstep::fuzz {

class Mutator {
 public:
  // tokens: words of the format. No input grows beyond `most_bytes`.
  Mutator(uint64_t seed, std::vector<std::string> tokens, size_t most_bytes);

  // Makes one to five changes. Parts may be taken from `other`.
  std::string change(std::string input, const std::string& other);

  size_t below(size_t count);  // 0 .. count - 1; 0 for none

 private:
  void change_once(std::string& input, const std::string& other);
  void change_bytes(std::string& input);
  void move_parts(std::string& input, const std::string& other);
  void put_binary_number(std::string& input);
  void put_decimal_number(std::string& input);
  void put_token(std::string& input);
  void repeat_part(std::string& input);
  std::string part_of(const std::string& text, size_t most);

  std::mt19937_64 random_;
  std::vector<std::string> tokens_;
  size_t most_bytes_;
};

// Reads the tokens of a libFuzzer dictionary: one per line, in quotes, with \\, \" and \xNN.
std::vector<std::string> parse_dictionary(const std::string& text);

}  // namespace lockstep::fuzz
