#include <lockstep/parallel/collectives/agree.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include <lockstep/parallel/collectives/gather_bytes.h>
#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using nlohmann::json;

// "its options"; of a process that calls something else altogether the text: "\"done\"".
std::string told_in(const json& message, const std::string& text) {
  constexpr size_t kMostShown = 60;
  if (message.is_object() && message.size() == 1) return "its " + message.begin().key();
  return fmt::format("\"{}\"", text.substr(0, kMostShown));
}

// One rank has fewer lines than another.
std::string line_or_nothing(const Lines& lines, size_t line) {
  return line < lines.size() ? lines[line] : "nothing more";
}

}  // namespace

std::string wire_text(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<json> gather_values(ProcessGroup* group, std::string_view what, const json& own) {
  if (!group) return {own};
  const std::string key(what);
  const auto texts = group->gather(wire_text({{key, own}}));
  std::vector<json> values;
  for (const auto& text : texts) {
    auto message = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!message.is_object() || !message.contains(key)) {
      throw UsageError(fmt::format("process {} told {} where process {} told its {}", values.size(),
                                   told_in(message, text), group->world().process, key),
                       "start all processes with the same program and options");
    }
    values.push_back(std::move(message[key]));
  }
  return values;
}

void require_same(const std::vector<Lines>& all, std::string_view whose, std::string_view what,
                  std::string_view hint) {
  for (size_t i = 1; i < all.size(); ++i) {
    const auto &first = all.front(), &other = all[i];
    if (other == first) continue;
    size_t line = 0;
    while (line < std::min(first.size(), other.size()) && first[line] == other[line]) ++line;
    throw UsageError(fmt::format("the {} differ: {} {} has {} where {} 0 has {}", what, whose, i,
                                 line_or_nothing(other, line), whose, line_or_nothing(first, line)),
                     std::string(hint));
  }
}

void agree(ProcessGroup* group, std::string_view what, const Lines& own, std::string_view hint) {
  std::vector<Lines> all;
  for (const auto& value : gather_values(group, what, own)) all.push_back(value.get<Lines>());
  require_same(all, "process", what, hint);
}

void agree(Endpoint& endpoint, std::string_view what, const Lines& own, std::string_view hint) {
  if (endpoint.world_size() == 1) return;
  std::vector<Lines> all;
  for (const auto& text : gather_texts(wire_text(own), endpoint)) {
    all.push_back(json::parse(text).get<Lines>());
  }
  require_same(all, "rank", what, hint);
}

}  // namespace lockstep
