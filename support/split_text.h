// Lists in texts: "cpu,cuda:0", "3:1", "fp32|bf16".
#pragma once

#include <algorithm>
#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The parts between the separators, in order, empty ones too; one for a text without a separator. They are
// views of `text`.
inline std::vector<std::string_view> split_text(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The views of a temporary would outlive it.
template <std::same_as<std::string> Text>
std::vector<std::string_view> split_text(Text&& text, char separator) = delete;

}  // namespace lockstep
