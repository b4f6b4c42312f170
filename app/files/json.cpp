#include <lockstep/app/files/json.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace lockstep {

std::string key_in_words(std::string key) {
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

std::string value_in_words(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "none";
  if (!value.is_array()) return value.dump();
  std::vector<std::string> parts;
  for (const auto& part : value) parts.push_back(value_in_words(part));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

}  // namespace lockstep
