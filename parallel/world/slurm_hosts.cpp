#include <lockstep/parallel/world/slurm_hosts.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <lockstep/support/error.h>
#include <lockstep/support/parse_number.h>

namespace lockstep {
namespace {

constexpr size_t kMostHosts = 1 << 16;
constexpr size_t kLongestName = 255;  // DNS's. Without these two limits a short text can fill the memory
constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

UsageError no_list(std::string_view what, std::string_view list) {
  return UsageError(fmt::format("'{}' is no {} of SLURM", list, what), "start the processes with srun");
}

// Cuts at the commas outside brackets.
std::vector<std::string_view> items_of(std::string_view list) {
  std::vector<std::string_view> items;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (i < list.size() && (list[i] != ',' || depth != 0)) continue;
    items.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  return items;
}

// "01-03" -> 01 02 03.
bool append_range(std::string_view range, std::vector<std::string>& numbers) {
  const auto dash = range.find('-');
  const auto first = parse_count<int>(range.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_count<int>(range.substr(dash + 1));
  if (!first || !last || *last < *first || static_cast<size_t>(*last - *first) >= kMostHosts) return false;
  const auto width = std::min(dash, range.size());
  if (width > kLongestName) return false;
  for (int64_t number = *first; number <= *last; ++number) {  // *last may be the largest int
    numbers.push_back(fmt::format("{:0{}}", number, width));
  }
  return true;
}

// Every name with every end. False if one would be longer than a host's.
bool append_ends(std::vector<std::string>& names, const std::vector<std::string>& ends) {
  std::vector<std::string> longer;
  for (const auto& name : names) {
    for (const auto& end : ends) {
      if (name.size() + end.size() > kLongestName) return false;
      longer.push_back(name + end);
    }
  }
  names = std::move(longer);
  return true;
}

// Appends the hosts of "a[1-2]b[3]": every bracket multiplies them. False if it is no such text.
bool append_hosts(std::string_view item, std::vector<std::string>& hosts) {
  std::vector<std::string> names{""};
  while (!item.empty()) {
    const auto open = item.find('[');
    const auto plain = item.substr(0, open);
    if (plain.find_first_not_of(kNameCharacters) != std::string_view::npos) return false;
    if (!append_ends(names, {std::string(plain)})) return false;
    if (open == std::string_view::npos) break;
    const auto close = item.find(']', open);
    if (close == std::string_view::npos) return false;
    std::vector<std::string> numbers;
    for (const auto range : items_of(item.substr(open + 1, close - open - 1))) {
      if (!append_range(range, numbers) || names.size() * numbers.size() > kMostHosts) return false;
    }
    if (!append_ends(names, numbers)) return false;
    item.remove_prefix(close + 1);
  }
  if (names.front().empty() || hosts.size() + names.size() > kMostHosts) return false;
  hosts.insert(hosts.end(), names.begin(), names.end());
  return true;
}

}  // namespace

std::vector<std::string> slurm_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  for (const auto item : items_of(list)) {
    if (!append_hosts(item, hosts)) throw no_list("list of hosts", list);
  }
  return hosts;
}

std::vector<int> slurm_tasks(std::string_view list) {
  std::vector<int> tasks;
  for (const auto item : items_of(list)) {
    const auto times = item.find("(x");
    const auto count = parse_count<int>(item.substr(0, times));
    std::optional<int> hosts = 1;
    if (times != std::string_view::npos) {
      const bool closed = item.back() == ')';
      hosts = closed ? parse_count<int>(item.substr(times + 2, item.size() - times - 3)) : std::nullopt;
    }
    if (!count || !hosts || *hosts == 0 || tasks.size() + static_cast<size_t>(*hosts) > kMostHosts) {
      throw no_list("list of tasks per host", list);
    }
    tasks.insert(tasks.end(), static_cast<size_t>(*hosts), *count);
  }
  return tasks;
}

}  // namespace lockstep
