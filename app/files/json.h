// JSON values, whose keys keep their order.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace lockstep {

using Json = nlohmann::ordered_json;

// null if there is no value.
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

// For messages: a key ("batch size") and a value as words.
std::string key_in_words(std::string key);
std::string value_in_words(const Json& value);

}  // namespace lockstep
