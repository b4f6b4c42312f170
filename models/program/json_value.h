// JSON as a tree that keeps the order of keys, with checked access.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::program {

// A value of JSON. Access to another type than the value has throws FormatError.
class Json {
 public:
  using List = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the text's order; no key comes twice
  using Value = std::variant<std::nullptr_t, bool, int64_t, double, std::string, List, Object>;

  Json() = default;
  explicit Json(Value value) : value_(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_text() const { return std::holds_alternative<std::string>(value_); }
  bool is_list() const { return std::holds_alternative<List>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  bool truth() const;
  int64_t integer() const;
  double number() const;  // also an integer, and the texts "Infinity", "-Infinity" and "NaN"
  const std::string& text() const;
  const List& list() const;
  const Object& object() const;

  const Json& at(std::string_view key) const;    // throws FormatError if the object has no such key
  const Json* find(std::string_view key) const;  // null: the object has none, or its value is null

  // The key and value of an object with one key, as a union is written: {"as_int": 3}.
  std::pair<const std::string&, const Json&> only() const;

  std::string kind() const;  // for messages: "a list"

 private:
  friend class JsonBuilder;
  Value value_ = nullptr;
};

// Parses a whole text. Throws FormatError for what is no JSON, for more than 100 levels, for a key that comes
// twice and for numbers beyond 64 bits. Takes about 30 times the text's bytes in the worst case.
Json parse_json(std::string_view text);

}  // namespace lockstep::program
