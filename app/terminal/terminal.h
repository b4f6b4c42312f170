// Colours and width of a terminal, and output to standard output.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <lockstep/support/error.h>

namespace lockstep {

enum class ColorMode { kAuto, kAlways, kNever };

// Colours text if colours are on, else returns it unchanged.
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

  bool interactive() const { return interactive_; }  // a terminal, not a file, pipe or dumb terminal
  int width() const;                                 // current number of columns; 80 if unknown
  size_t text_width() const;                         // where text is wrapped; npos where lines stay whole
  int height() const;                                // current number of rows; 24 if unknown
  const Style& style() const { return style_; }

  // Erases what a killed process may have left of a LiveBlock. Does nothing if this is not interactive.
  void erase_leftovers() const;

 private:
  int fd_;
  bool interactive_;
  Style style_;
};

// The text broken between words, so that no line goes beyond `width` columns. The first line begins at column
// `indent`, and the later ones get as many blanks.
std::string wrapped(std::string_view text, size_t indent, size_t width);

// Returns true if the user's locale uses UTF-8.
bool utf8_locale();

// The reader of standard output has gone (`| head`).
class ReaderGoneError : public OutputError {
 public:
  using OutputError::OutputError;
};

// Writes to standard output without buffering. Throws OutputError if the text cannot be written, for example
// because the disk is full; ReaderGoneError if the reader has gone. While a LiveBlock is drawn, the text must
// end with a line break.
void write_stdout(std::string_view text);

}  // namespace lockstep
