#include <lockstep/data/formats/class_names.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <unordered_set>

#include <lockstep/data/formats/byte_source.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/utf8.h>

namespace lockstep {
namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr size_t kMostNames = 65'536;
constexpr const char* kNamesFileHint = "write one name per line, each of them once, in UTF-8";

std::string text_of_names(const std::filesystem::path& path) {
  auto source = open_plain_bytes(path, kNamesFileHint);
  if (source->most_bytes() > kMostBytes) {
    throw DataError(fmt::format("{} has {} bytes, at most {} of names of classes were expected",
                                path.string(), source->most_bytes(), kMostBytes),
                    kNamesFileHint);
  }
  std::string text(source->most_bytes(), '\0');
  text.resize(source->read(std::as_writable_bytes(std::span(text))));
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // of editors that mark UTF-8 with it
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

std::vector<std::string> lines_of_names(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::vector<std::string> letters(char first, char last) {
  std::vector<std::string> names;
  for (char letter = first; letter <= last; ++letter) names.emplace_back(1, letter);
  return names;
}

void append_names(std::vector<std::string>& names, const std::vector<std::string>& more) {
  names.insert(names.end(), more.begin(), more.end());
}

// Returns "'3'" or "'3' and 2 more classes".
std::string some_classes(const std::vector<std::string>& names) {
  const auto more = static_cast<int64_t>(names.size()) - 1;
  const auto first = in_quotes(names.front());
  return more == 0 ? first : fmt::format("{} and {} more class{}", first, more, more == 1 ? "" : "es");
}

std::vector<int64_t> counts_of_bytes(std::span<const uint8_t> labels, size_t classes) {
  std::vector<int64_t> counts(std::max<size_t>(classes, 256));
  for (const auto label : labels) ++counts[label];
  counts.resize(classes);
  return counts;
}

// The label that all rows have; nothing: there are several, or no rows.
std::optional<size_t> only_label(std::span<const int64_t> counts) {
  const auto is_there = [](int64_t count) { return count > 0; };
  if (std::ranges::count_if(counts, is_there) != 1) return std::nullopt;
  return static_cast<size_t>(std::ranges::find_if(counts, is_there) - counts.begin());
}

}  // namespace

std::vector<std::string> read_class_names(const std::filesystem::path& path) {
  auto names = lines_of_names(text_of_names(path));
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto refuse = [&](const std::string& what) {
      throw DataError(fmt::format("{} has {} in line {}", path.string(), what, i + 1), kNamesFileHint);
    };
    if (names[i].empty()) refuse("no name");
    if (!is_utf8(names[i])) refuse(fmt::format("{}, which is no UTF-8,", with_escaped_bytes(names[i])));
    if (!seen.insert(names[i]).second) refuse(fmt::format("{} again", in_quotes(names[i])));
    if (i >= kMostNames) refuse(fmt::format("more than {} names", kMostNames));
  }
  if (names.empty()) throw DataError(path.string() + " has no names of classes", kNamesFileHint);
  return names;
}

std::vector<std::string> numbered_classes(int64_t classes) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < classes; ++i) names.push_back(fmt::format("{}", i));
  return names;
}

std::vector<std::string> emnist_classes(const std::string& prefix) {
  if (prefix == "emnist-letters") {
    std::vector<std::string> names = {"N/A"};
    append_names(names, letters('a', 'z'));
    return names;
  }
  auto names = letters('0', '9');
  if (prefix == "emnist-digits" || prefix == "emnist-mnist") return names;
  append_names(names, letters('A', 'Z'));
  if (prefix == "emnist-byclass") {
    append_names(names, letters('a', 'z'));
    return names;
  }
  // Small letters that look like capital ones are one class with these.
  append_names(names, {"a", "b", "d", "e", "f", "g", "h", "n", "q", "r", "t"});
  if (prefix == "emnist-bymerge" || prefix == "emnist-balanced") return names;
  return {};
}

std::vector<std::string> fashion_mnist_classes() {
  return {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
          "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
}

void check_labels(std::span<const uint8_t> labels, int64_t classes, const std::filesystem::path& path) {
  const auto wrong = std::ranges::find_if(labels, [&](uint8_t label) { return label >= classes; });
  if (wrong == labels.end()) return;
  throw DataError(fmt::format("{} has label {} in row {}, labels are 0 to {}", path.string(), *wrong,
                              wrong - labels.begin(), classes - 1),
                  "put a whole copy of the file in its place, or name all classes");
}

std::vector<std::string> label_notices(std::span<const uint8_t> train, std::span<const uint8_t> test,
                                       const std::vector<std::string>& class_names) {
  return label_notices(counts_of_bytes(train, class_names.size()), counts_of_bytes(test, class_names.size()),
                       class_names, "image");
}

std::vector<std::string> label_notices(std::span<const int64_t> in_train, std::span<const int64_t> in_test,
                                       const std::vector<std::string>& class_names, std::string_view noun) {
  std::vector<std::string> nowhere, only_in_test;
  for (size_t label = 0; label < class_names.size(); ++label) {
    if (in_train[label] > 0) continue;
    (in_test[label] > 0 ? only_in_test : nowhere).push_back(class_names[label]);
  }
  std::vector<std::string> notices;
  if (const auto only = only_label(in_train)) {
    notices.push_back(fmt::format("all {}s for training are of one class, {}: there is nothing to tell apart",
                                  noun, in_quotes(class_names[*only])));
  }
  if (!class_names.empty() && in_train[0] + in_test[0] == 0 && nowhere.size() == 1) {
    notices.push_back(fmt::format("labels begin at 1: {} counts as one of {} classes and has no {}",
                                  in_quotes(nowhere.front()), class_names.size(), noun));
  } else if (!nowhere.empty()) {
    notices.push_back(fmt::format("no {} is of class {}", noun, some_classes(nowhere)));
  }
  if (!only_in_test.empty()) {
    notices.push_back(fmt::format("there are {}s for testing, and none for training, of class {}", noun,
                                  some_classes(only_in_test)));
  }
  return notices;
}

}  // namespace lockstep
