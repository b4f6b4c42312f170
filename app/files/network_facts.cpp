#include <lockstep/app/files/network_facts.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep {

nlohmann::ordered_json to_json(const NetworkFacts& facts) {
  return {{"input", facts.input},
          {"row_shape", facts.row_shape},
          {"bytes", facts.bytes},
          {"classes", facts.classes}};
}

std::optional<NetworkFacts> read_facts(const nlohmann::ordered_json& json) {
  if (!json.is_object()) return std::nullopt;
  try {
    NetworkFacts facts{.input = json.at("input").get<std::string>(),
                       .row_shape = json.at("row_shape").get<std::vector<int64_t>>(),
                       .bytes = json.at("bytes").get<bool>(),
                       .classes = json.at("classes").get<std::vector<std::string>>()};
    const bool sound = std::ranges::all_of(facts.row_shape, [](int64_t size) { return size > 0; });
    return sound && !facts.classes.empty() ? std::optional(std::move(facts)) : std::nullopt;
  } catch (const nlohmann::ordered_json::exception&) {
    return std::nullopt;
  }
}

}  // namespace lockstep
