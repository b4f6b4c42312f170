#include <lockstep/app/train/plan/data_flags.h>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include <lockstep/support/error.h>
#include <lockstep/support/parse_number.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/split_text.h>

namespace lockstep {

SyntheticShape parse_synthetic_shape(const std::string& text) {
  const auto colon = text.find(':');
  std::vector<std::optional<int64_t>> numbers;
  for (const auto& part : split_text(std::string_view(text).substr(0, colon), 'x')) {
    numbers.push_back(parse_count<int64_t>(part));
  }
  SyntheticShape shape;
  if (colon != std::string::npos)
    numbers.push_back(parse_count<int64_t>(std::string_view(text).substr(colon + 1)));
  const bool fits = numbers.size() == (colon == std::string::npos ? 3 : 4) &&
                    std::ranges::all_of(numbers, [](const auto& number) { return number.value_or(0) > 0; });
  if (!fits) {
    throw UsageError(
        fmt::format("must be CHANNELSxHEIGHTxWIDTH, such as 3x32x32, with :CLASSES behind it if "
                    "there are not 10, got {}",
                    in_quotes(text)));
  }
  shape.channels = *numbers[0];
  shape.height = *numbers[1];
  shape.width = *numbers[2];
  if (numbers.size() == 4) shape.classes = *numbers[3];
  return shape;
}

std::string to_string(const SyntheticShape& shape) {
  auto text = fmt::format("{}x{}x{}", shape.channels, shape.height, shape.width);
  if (shape.classes != SyntheticShape{}.classes) text += fmt::format(":{}", shape.classes);
  return text;
}

}  // namespace lockstep
