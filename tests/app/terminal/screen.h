// A terminal's screen for tests: knows the few control sequences that the program uses, and refuses all
// others.
#pragma once

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {

class Screen {
 public:
  Screen(size_t columns, size_t rows) : columns_(columns), rows_(rows), lines_(1) {}

  // Throws for a sequence that is unknown, or that is not whole at the end.
  void feed(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const auto byte = static_cast<unsigned char>(bytes[at]);
      if (byte == '\r') {
        column_ = 0, ++at;
      } else if (byte == '\n') {
        down(), ++at;
      } else if (byte == 0x1b) {
        at = control(bytes, at + 1);
      } else if (byte < 0x20 || byte == 0x7f) {
        throw std::runtime_error("unknown control character " + std::to_string(byte));
      } else {
        const size_t count = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
        put(bytes.substr(at, count));
        at += count;
      }
    }
  }

  // As terminals do that break long lines anew; others cut them. The cursor must be at the start of a line.
  void resize(size_t columns, size_t rows, bool breaks_anew) {
    std::vector<Cells> lines;
    size_t row = 0;
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (i == row_) row = lines.size();
      auto line = lines_[i];
      for (; breaks_anew && line.size() > columns;
           line.erase(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(columns))) {
        lines.emplace_back(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(columns));
      }
      line.resize(std::min(line.size(), columns));
      lines.push_back(line);
    }
    lines_ = std::move(lines);
    row_ = row;
    columns_ = columns;
    rows_ = rows;
  }

  // All lines, also those that have scrolled away, without blanks at their ends and empty lines at the end.
  std::vector<std::string> text() const {
    std::vector<std::string> result;
    for (const auto& line : lines_) {
      std::string row;
      for (const auto& cell : line) row += cell;
      row.erase(row.find_last_not_of(' ') + 1);
      result.push_back(row);
    }
    while (!result.empty() && result.back().empty()) result.pop_back();
    return result;
  }

  size_t row() const { return row_; }        // of the cursor, among all lines
  size_t column() const { return column_; }  // of the cursor
  int wrapped() const { return wrapped_; }   // how often a line has reached beyond the last column

 private:
  using Cells = std::vector<std::string>;

  void down() {
    if (++row_ == lines_.size()) lines_.emplace_back();
  }

  void put(const std::string& character) {
    if (column_ == columns_) {
      ++wrapped_;
      column_ = 0;
      down();
    }
    auto& line = lines_[row_];
    if (line.size() <= column_) line.resize(column_ + 1, " ");
    line[column_++] = character;
  }

  size_t control(const std::string& bytes, size_t at) {
    if (at >= bytes.size() || bytes[at] != '[') throw std::runtime_error("unknown escape");
    std::string number;
    for (++at; at < bytes.size() && (std::isdigit(bytes[at]) || bytes[at] == ';'); ++at) number += bytes[at];
    if (at == bytes.size()) throw std::runtime_error("an escape is not whole");
    const char kind = bytes[at];
    auto& line = lines_[row_];
    if (kind == 'm') return at + 1;  // a colour
    if (kind == 'A') {
      const size_t top = lines_.size() > rows_ ? lines_.size() - rows_ : 0;  // the cursor stays on the screen
      row_ = std::max(top, row_ - std::min(row_, static_cast<size_t>(std::stoi(number))));
    } else if ((kind == 'K' || kind == 'J') && number.empty()) {
      line.resize(std::min(line.size(), column_));
      if (kind == 'J') {
        for (size_t i = row_ + 1; i < lines_.size(); ++i) lines_[i].clear();
      }
    } else {
      throw std::runtime_error("unknown sequence ESC [ " + number + kind);
    }
    return at + 1;
  }

  size_t columns_;
  size_t rows_;
  std::vector<Cells> lines_;  // the last rows_ of them are visible
  size_t row_ = 0;
  size_t column_ = 0;
  int wrapped_ = 0;
};

}  // namespace lockstep::testing
