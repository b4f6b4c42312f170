#include <lockstep/app/terminal/terminal.h>

#include <fmt/format.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <lockstep/app/terminal/live_block.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/output_failure.h>

namespace lockstep {
namespace {

constexpr int kUsualWidth = 80;
constexpr int kUsualHeight = 24;

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value;
}

// A dumb terminal has no colours.
bool is_capable(int fd) {
  const char* kind = std::getenv("TERM");
  return isatty(fd) && !(kind && std::string_view(kind) == "dumb");
}

bool colours(bool capable, ColorMode mode) {
  if (mode == ColorMode::kAuto) return capable && !is_set("NO_COLOR");
  return mode == ColorMode::kAlways;
}

}  // namespace

std::string Style::marked(std::string_view code, std::string_view text) const {
  return on_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

Terminal::Terminal(int fd, ColorMode mode)
    : fd_(fd), interactive_(is_capable(fd)), style_(colours(interactive_, mode)) {}

int Terminal::width() const {
  winsize size{};
  const bool known = ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualWidth;
}

int Terminal::height() const {
  winsize size{};
  const bool known = ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
  return known ? size.ws_row : kUsualHeight;
}

void Terminal::erase_leftovers() const {
  if (interactive_) (void)!::write(fd_, kEraseBlock.data(), kEraseBlock.size());
}

size_t Terminal::text_width() const {
  return interactive_ ? static_cast<size_t>(width()) : std::string::npos;
}

std::string wrapped(std::string_view text, size_t indent, size_t width) {
  std::string out;
  size_t column = indent;
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    const auto word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (column > indent && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    }
    if (column > indent) out += ' ', ++column;
    out += word;
    column += word.size();
  }
  return out;
}

bool utf8_locale() {
  // Not setlocale(): it would change how the whole process reads and writes numbers.
  const locale_t user = newlocale(LC_CTYPE_MASK, "", nullptr);
  if (!user) return false;
  const bool utf8 = std::string_view(nl_langinfo_l(CODESET, user)) == "UTF-8";
  freelocale(user);
  return utf8;
}

void write_stdout(std::string_view text) {
  const AboveBlock above(STDOUT_FILENO);
  while (!text.empty()) {
    const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const auto failure = output_failure("cannot write to standard output", errno);
      if (errno == EPIPE) throw ReaderGoneError(failure.message());
      throw failure;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace lockstep
