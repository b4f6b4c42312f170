#include <lockstep/parallel/collectives/gloo/messages.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {
namespace {

// Returns true for "/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:544", and false for an address.
bool is_source_place(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == text.size()) return false;
  constexpr std::array kEndings{".cc", ".cpp", ".h", ".hpp"};
  return text.find_first_not_of("0123456789", colon + 1) == std::string_view::npos &&
         std::any_of(kEndings.begin(), kEndings.end(),
                     [&](const char* ending) { return text.substr(0, colon).ends_with(ending); });
}

// Gloo writes them in brackets before its own words: "[.../pair.cc:544] Connection closed by peer
// [127.0.0.1]:40412".
std::string without_source_places(std::string words) {
  for (auto begin = words.find('['); begin != std::string::npos; begin = words.find('[', begin)) {
    const auto end = words.find(']', begin);
    if (end == std::string::npos) break;
    if (is_source_place(std::string_view(words).substr(begin + 1, end - begin - 1))) {
      words.erase(begin, words.find_first_not_of(' ', end + 1) - begin);
    } else {
      ++begin;
    }
  }
  return words;
}

}  // namespace

std::string clean_words(const std::string& what) {
  auto words = what.substr(0, what.find('\n'));
  words = words.substr(0, words.find("Exception raised from"));
  words = without_source_places(words);
  words = words.substr(0, words.find(". "));
  words.erase(words.find_last_not_of(" .:") + 1);  // npos + 1 is 0
  return words.empty() ? "unknown error" : words;
}

std::string name_processes(const std::vector<int>& processes, int world) {
  if (processes.size() == 1) return fmt::format("process {} of {}", processes.front(), world);
  const auto last = processes.end() - 1;
  return fmt::format("processes {} and {} of {}", fmt::join(processes.begin(), last, ", "), *last, world);
}

std::string in_seconds(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", std::chrono::duration<double>(time).count());
}

PeerError peer_failed_error() {
  return PeerError("another process cannot go on", "see the messages of the other processes");
}

}  // namespace lockstep
