#include <lockstep/support/suggest.h>

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

// No name is longer. The limit also bounds the work for a very long word.
constexpr size_t kLongestWord = 64;
// A shorter beginning fits too many names.
constexpr size_t kShortestBeginning = 3;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_near(std::string_view word, std::string_view name, int distance) {
  const auto longer = std::max(word.size(), name.size());
  return distance <= std::max(1, static_cast<int>(longer) / 3) && distance < static_cast<int>(word.size());
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the usual table: distances of the first i characters of a to each beginning of b.
  std::vector<int> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) current[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(previous);
    previous.swap(current);
    current[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replace = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) current[j] = std::min(current[j], before[j - 2] + 1);
    }
  }
  return current[b.size()];
}

std::vector<std::string> completions(std::string_view word, std::span<const std::string> names) {
  const auto beginning = normalized(word);
  std::vector<std::string> found;
  if (beginning.size() < kShortestBeginning) return found;
  for (const auto& name : names) {
    if (normalized(name).starts_with(beginning)) found.push_back(name);
  }
  return found;
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> names) {
  const auto wanted = normalized(word);
  if (wanted.empty() || wanted.size() > kLongestWord) return std::nullopt;
  if (const auto found = completions(word, names); found.size() == 1) return found.front();

  const std::string* best = nullptr;
  int best_distance = 0;
  for (const auto& name : names) {
    const auto candidate = normalized(name);
    const int distance = edit_distance(wanted, candidate);
    if (!is_near(wanted, candidate, distance) || (best && distance >= best_distance)) continue;
    best = &name;
    best_distance = distance;
  }
  return best ? std::optional(*best) : std::nullopt;
}

std::string normalized(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::string text(word);
  for (auto& c : text) c = c == '_' ? '-' : lower(c);
  return text;
}

}  // namespace lockstep
