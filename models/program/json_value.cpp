#include <lockstep/models/program/json_value.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include <lockstep/models/program/format_error.h>
#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

constexpr size_t kMostLevels = 100;

template <class T>
const T& expect(const Json::Value& value, const Json& json, const char* what) {
  const auto* held = std::get_if<T>(&value);
  if (!held) throw FormatError(fmt::format("has {} where {} is expected", json.kind(), what));
  return *held;
}

void check_keys(const Json::Object& object) {
  std::vector<std::string_view> keys;
  keys.reserve(object.size());
  for (const auto& [key, value] : object) keys.push_back(key);
  std::ranges::sort(keys);
  const auto twice = std::ranges::adjacent_find(keys);
  if (twice != keys.end()) throw FormatError(fmt::format("has the key {} twice", in_quotes(*twice)));
}

}  // namespace

// Builds the tree from the parser's events. (nlohmann's own tree sorts keys or searches them one by one.)
class JsonBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override {
    if (value > std::numeric_limits<int64_t>::max()) {
      throw FormatError(fmt::format("has the number {}, which needs more than 64 bits", value));
    }
    return add(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::Object()); }
  bool start_array(size_t) override { return open(Json::List()); }
  bool end_array() override { return close(); }
  bool end_object() override {
    check_keys(std::get<Json::Object>(stack_.back().value_));
    return close();
  }
  bool key(std::string& name) override {
    std::get<Json::Object>(stack_.back().value_).emplace_back(std::move(name), Json());
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw FormatError(fmt::format("is no JSON at byte {}", position));
  }

  Json take() { return std::move(root_); }

 private:
  bool open(Json::Value value) {
    if (stack_.size() == kMostLevels) throw FormatError(fmt::format("has more than {} levels", kMostLevels));
    stack_.emplace_back(std::move(value));
    return true;
  }
  bool close() {
    auto whole = std::move(stack_.back().value_);
    stack_.pop_back();
    return add(std::move(whole));
  }
  bool add(Json::Value value) {
    if (stack_.empty()) {
      root_ = Json(std::move(value));
    } else if (auto* list = std::get_if<Json::List>(&stack_.back().value_)) {
      list->emplace_back(std::move(value));
    } else {
      std::get<Json::Object>(stack_.back().value_).back().second = Json(std::move(value));
    }
    return true;
  }

  std::vector<Json> stack_;  // lists and objects that are not closed
  Json root_;
};

Json parse_json(std::string_view text) {
  JsonBuilder builder;
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

bool Json::truth() const { return expect<bool>(value_, *this, "true or false"); }
int64_t Json::integer() const { return expect<int64_t>(value_, *this, "an integer"); }
const std::string& Json::text() const { return expect<std::string>(value_, *this, "a text"); }
const Json::List& Json::list() const { return expect<List>(value_, *this, "a list"); }
const Json::Object& Json::object() const { return expect<Object>(value_, *this, "an object"); }

double Json::number() const {
  if (const auto* whole = std::get_if<int64_t>(&value_)) return static_cast<double>(*whole);
  if (const auto* word = std::get_if<std::string>(&value_)) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (*word == "Infinity") return kInfinity;
    if (*word == "-Infinity") return -kInfinity;
    if (*word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  return expect<double>(value_, *this, "a number");
}

const Json* Json::find(std::string_view key) const {
  const auto& members = object();
  const auto found = std::ranges::find(members, key, &Object::value_type::first);
  return found == members.end() || found->second.is_null() ? nullptr : &found->second;
}

const Json& Json::at(std::string_view key) const {
  const auto& members = object();
  const auto found = std::ranges::find(members, key, &Object::value_type::first);
  if (found == members.end()) throw FormatError(fmt::format("has no {}", in_quotes(key)));
  return found->second;
}

std::pair<const std::string&, const Json&> Json::only() const {
  const auto& members = object();
  if (members.size() != 1) {
    throw FormatError(fmt::format("has an object of {} keys where one is expected", members.size()));
  }
  return {members[0].first, members[0].second};
}

std::string Json::kind() const {
  struct Kind {
    std::string operator()(std::nullptr_t) const { return "null"; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(int64_t value) const { return fmt::format("the number {}", value); }
    std::string operator()(double value) const { return fmt::format("the number {}", value); }
    std::string operator()(const std::string& value) const { return "the text " + in_quotes(value); }
    std::string operator()(const List&) const { return "a list"; }
    std::string operator()(const Object&) const { return "an object"; }
  };
  return std::visit(Kind(), value_);
}

}  // namespace lockstep::program
