// Names of enumerations' values. Each enumeration has a table of Choices beside it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/support/error.h>

namespace lockstep {

template <class Enum>
struct Choice {
  std::string_view name;
  Enum value;
};

// All names, in the table's order.
template <class Enum, size_t kCount>
std::vector<std::string> names_of(const Choice<Enum> (&choices)[kCount]) {
  std::vector<std::string> names;
  for (const auto& choice : choices) names.emplace_back(choice.name);
  return names;
}

// The name of this value; "?" if the table has none.
template <class Enum, size_t kCount>
std::string_view name_of(const Choice<Enum> (&choices)[kCount], Enum value) {
  for (const auto& choice : choices) {
    if (choice.value == value) return choice.name;
  }
  return "?";
}

// Throws the UsageError of a name that is none of these.
[[noreturn]] void throw_unknown_name(std::string_view name, const std::vector<std::string>& known);

// The value of this name. Throws UsageError, which lists the names, if there is none.
template <class Enum, size_t kCount>
Enum value_of(const Choice<Enum> (&choices)[kCount], std::string_view name) {
  for (const auto& choice : choices) {
    if (choice.name == name) return choice.value;
  }
  throw_unknown_name(name, names_of(choices));
}

}  // namespace lockstep
