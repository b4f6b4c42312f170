// What an output stream can show, and writing results to standard output.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/support/error.h>

namespace lockstep {

enum class ColorMode { kAuto, kAlways, kNever };

// Marks text up, or leaves it as it is where colours are off.
class Style {
 public:
  explicit Style(bool on) : on_(on) {}

  std::string bold(std::string_view text) const { return marked("1", text); }
  std::string dim(std::string_view text) const { return marked("2", text); }
  std::string red(std::string_view text) const { return marked("1;31", text); }
  std::string green(std::string_view text) const { return marked("32", text); }
  std::string yellow(std::string_view text) const { return marked("33", text); }
  std::string cyan(std::string_view text) const { return marked("36", text); }

 private:
  std::string marked(std::string_view code, std::string_view text) const;

  bool on_;
};

// Standard output or standard error.
class Terminal {
 public:
  // kAuto: colours on a terminal, unless NO_COLOR is set.
  Terminal(int fd, ColorMode mode);

  bool interactive() const { return interactive_; }  // a terminal that can rewrite its line
  int width() const;                                 // columns at this moment, 80 where there is no telling
  const Style& style() const { return style_; }

 private:
  int fd_;
  bool interactive_;
  Style style_;
};

// Whether the locale's characters are UTF-8.
bool utf8_locale();

// Nobody reads standard output any more (`| head`).
class ReaderGoneError : public OutputError {
 public:
  using OutputError::OutputError;
};

// Writes results to standard output at once, so that a pipe shows them as they come. Throws OutputError when
// they do not arrive: a full disk must not pass for success.
void write_stdout(std::string_view text);

}  // namespace lockstep
