#include <lockstep/app/files/network_facts.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep {
namespace {

using Numbers = std::vector<double>;

bool fits_channels(const Numbers& values, const std::vector<int64_t>& row_shape) {
  return values.size() <= 1 || std::ssize(values) == row_shape.at(0);
}

bool is_sound(const NetworkFacts& facts) {
  const auto positive = [](auto value) { return value > 0; };
  return std::ranges::all_of(facts.row_shape, positive) && !facts.classes.empty() && facts.image_size >= 0 &&
         facts.mean.size() == facts.deviation.size() && std::ranges::all_of(facts.deviation, positive) &&
         (facts.mean.empty() || (!facts.row_shape.empty() && fits_channels(facts.mean, facts.row_shape)));
}

}  // namespace

nlohmann::ordered_json to_json(const NetworkFacts& facts) {
  return {{"input", facts.input},        {"row_shape", facts.row_shape},   {"bytes", facts.bytes},
          {"classes", facts.classes},    {"image_size", facts.image_size}, {"mean", facts.mean},
          {"deviation", facts.deviation}};
}

std::optional<NetworkFacts> read_facts(const nlohmann::ordered_json& json) {
  if (!json.is_object()) return std::nullopt;
  try {
    NetworkFacts facts{.input = json.at("input").get<std::string>(),
                       .row_shape = json.at("row_shape").get<std::vector<int64_t>>(),
                       .bytes = json.at("bytes").get<bool>(),
                       .classes = json.at("classes").get<std::vector<std::string>>(),
                       .image_size = json.value("image_size", int64_t{0}),
                       .mean = json.value("mean", Numbers{}),
                       .deviation = json.value("deviation", Numbers{})};
    return is_sound(facts) ? std::optional(std::move(facts)) : std::nullopt;
  } catch (const nlohmann::ordered_json::exception&) {
    return std::nullopt;
  }
}

}  // namespace lockstep
