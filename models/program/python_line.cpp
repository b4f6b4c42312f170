#include <lockstep/models/program/python_line.h>

#include <fmt/format.h>

#include <string_view>

#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

struct Frame {
  std::string_view file, line, code;
};

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// Takes a line of text from the front.
std::string_view take_line(std::string_view& text) {
  const auto end = text.find('\n');
  const auto line = text.substr(0, end);
  text = end == text.npos ? std::string_view() : text.substr(end + 1);
  return line;
}

// Returns the file and the number of 'File "net.py", line 12, in forward', or nothing.
Frame frame_of(std::string_view line) {
  constexpr std::string_view kFile = "File \"", kLine = "\", line ";
  if (!line.starts_with(kFile)) return {};
  const auto end = line.find(kLine);
  if (end == line.npos) return {};
  const auto number = line.substr(end + kLine.size());
  return {line.substr(kFile.size(), end - kFile.size()), number.substr(0, number.find(',')), {}};
}

// True for files of torch, and for code that Python made, such as "<eval_with_key>.12".
bool is_torch(std::string_view file) {
  return file.starts_with("torch/") || file.starts_with('<') || file.find("-packages/torch/") != file.npos;
}

std::string shortened_code(std::string_view code) {
  constexpr size_t kMost = 100;
  if (code.size() <= kMost) return std::string(code);
  return std::string(code.substr(0, kMost)) + "...";
}

}  // namespace

std::string python_line(const std::string& place) {
  Frame frame, chosen;
  const auto choose = [&] {
    if (!frame.file.empty() && (chosen.file.empty() || is_torch(chosen.file) || !is_torch(frame.file)))
      chosen = frame;
  };
  for (std::string_view rest = place; !rest.empty();) {
    const auto line = trimmed(take_line(rest));
    if (const auto next = frame_of(line); !next.file.empty()) {
      choose();
      frame = next;
    } else if (frame.code.empty()) {
      frame.code = line;
    }
  }
  choose();
  if (chosen.file.empty()) return {};
  const auto code = shortened_code(chosen.code);
  return printable(fmt::format("{}, line {}{}{}", chosen.file, chosen.line, code.empty() ? "" : ": ", code));
}

}  // namespace lockstep::program
