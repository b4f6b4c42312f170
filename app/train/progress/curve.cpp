#include <lockstep/app/train/progress/curve.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// A braille character holds 2 x 4 dots, a plain character is one dot.
struct DotGrid {
  int columns;  // dots per character
  int rows;
};
constexpr DotGrid kBraille{2, 4};
constexpr DotGrid kPlain{1, 1};

constexpr std::string_view kAccuracyLabel = "test acc ";
constexpr std::string_view kEpochLabel = "  epoch";
constexpr double kFinestStep = .02;  // smallest distance between labels
constexpr int kFewestColumns = 10;

// Accuracies at the bottom and the top row, and the distance between labels.
struct Axis {
  double low;
  double high;
  double step;
};

// Returns an axis of at most `most` parts that contains the range. Its step is 1, 2, 2.5 or 5 times a power
// of ten and at least kFinestStep; its ends are multiples of the step.
Axis axis_for(double low, double high, int most) {
  for (double power = kFinestStep / 2;; power *= 10) {
    for (const double factor : {1., 2., 2.5, 5.}) {
      const double step = factor * power;
      if (step < kFinestStep) continue;
      // Tolerance: .3 / .1 is 2.9999999999999996.
      const double first = std::floor(low / step + 1e-9);
      const double last = std::max(std::ceil(high / step - 1e-9), first + 1);
      if (last - first <= most) return {first * step, last * step, step};
    }
  }
}

class Canvas {
 public:
  Canvas(int columns, int rows, DotGrid grid)
      : columns_(columns), rows_(rows), grid_(grid), dots_(static_cast<size_t>(width() * height())) {}

  int width() const { return columns_ * grid_.columns; }  // in dots
  int height() const { return rows_ * grid_.rows; }

  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      const double part = static_cast<double>(i) / steps;
      set(static_cast<int>(std::lround(x0 + part * (x1 - x0))),
          static_cast<int>(std::lround(y0 + part * (y1 - y0))));
    }
  }

  // Marks the character at this dot.
  void mark(int x, int y) { mark_ = {x / grid_.columns, y / grid_.rows}; }

  std::string row(int row) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) text += cell(column, row);
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

 private:
  void set(int x, int y) { dots_[static_cast<size_t>(y * width() + x)] = true; }
  bool dot(int x, int y) const { return dots_[static_cast<size_t>(y * width() + x)]; }

  std::string cell(int column, int row) const {
    const bool plain = grid_.columns == 1;
    if (std::pair(column, row) == mark_) return plain ? "o" : "●";
    if (plain) return dot(column, row) ? "*" : " ";
    // Unicode's bits of the eight dots, by row and column.
    constexpr unsigned kBit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    unsigned bits = 0;
    for (int y = 0; y < 4; ++y) {
      for (int x = 0; x < 2; ++x) bits |= dot(2 * column + x, 4 * row + y) ? kBit[y][x] : 0;
    }
    if (bits == 0) return " ";
    // U+2800 + bits in UTF-8.
    return {static_cast<char>(0xe2), static_cast<char>(0xa0 | (bits >> 6)),
            static_cast<char>(0x80 | (bits & 0x3f))};
  }

  int columns_;
  int rows_;
  DotGrid grid_;
  std::vector<bool> dots_;
  std::pair<int, int> mark_{-1, -1};  // column and row
};

// The dot of `position`, where 0 is the first dot and `last` the last one.
int dot_at(double position, double last, int dots) {
  return last > 0 ? static_cast<int>(std::lround(position / last * (dots - 1))) : 0;
}

void draw_line(Canvas& canvas, std::span<const double> accuracy, int total_epochs, const Axis& axis) {
  int last_x = -1, last_y = 0;
  for (size_t i = 0; i < accuracy.size() && i < static_cast<size_t>(total_epochs); ++i) {
    if (!std::isfinite(accuracy[i])) {
      last_x = -1;  // leave a gap
      continue;
    }
    const int x = dot_at(static_cast<double>(i), total_epochs - 1, canvas.width());
    const int y = dot_at(axis.high - accuracy[i], axis.high - axis.low, canvas.height());
    canvas.line(last_x < 0 ? x : last_x, last_x < 0 ? y : last_y, x, y);
    canvas.mark(x, y);  // the last call marks the newest epoch
    last_x = x;
    last_y = y;
  }
}

// Returns the distance between labels, 1, 2 or 5 times a power of ten, such that at most `most` labels fit up
// to `total`.
int epoch_step(int total, int most) {
  for (int power = 1;; power *= 10) {
    for (const int factor : {1, 2, 5}) {
      if (total / (factor * power) <= most) return factor * power;
    }
  }
}

// Draws the x axis with a tick at each labelled epoch, and the labels: 1 and the multiples of a step.
std::string epoch_axis(int total_epochs, int columns, int indent, bool utf8) {
  const int label_width = static_cast<int>(std::to_string(total_epochs).size());
  const int step = epoch_step(total_epochs, std::max(1, (columns + 2) / (label_width + 2)));

  std::vector<bool> marked(static_cast<size_t>(columns));
  std::string labels(static_cast<size_t>(indent), ' ');
  for (int epoch = 1; epoch <= total_epochs; epoch = epoch / step * step + step) {
    const auto column = static_cast<size_t>(dot_at(epoch - 1, total_epochs - 1, columns));
    const auto begin = static_cast<size_t>(indent) + column;
    if (epoch > 1 && begin < labels.size() + 1) continue;  // too close to the previous label
    marked[column] = true;
    labels.resize(begin, ' ');
    labels += std::to_string(epoch);
  }
  std::string line(static_cast<size_t>(indent - 1), ' ');
  line += utf8 ? "└" : "+";
  for (const bool mark : marked) line += mark ? (utf8 ? "┬" : "+") : (utf8 ? "─" : "-");
  return line + "\n" + labels + std::string(kEpochLabel) + "\n";
}

}  // namespace

std::string draw_curve(std::span<const double> accuracy, int total_epochs, int width, int height, bool utf8) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double value : accuracy) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low > high) return "";

  const auto axis = axis_for(low, high, std::max(1, height / 2));
  const int decimals = std::abs(axis.step * 10 - std::round(axis.step * 10)) < 1e-9 ? 1 : 2;
  const int label_width = 2 + decimals;  // "0.85"
  const int indent = static_cast<int>(kAccuracyLabel.size()) + label_width + 2;
  const int right = static_cast<int>(std::to_string(total_epochs).size() - 1 + kEpochLabel.size());
  const int columns = std::max(width - indent - right, kFewestColumns);

  Canvas canvas(columns, height, utf8 ? kBraille : kPlain);
  draw_line(canvas, accuracy, total_epochs, axis);

  const int parts = static_cast<int>(std::lround((axis.high - axis.low) / axis.step));
  std::vector<std::string> labels(static_cast<size_t>(height));
  for (int i = 0; i <= parts; ++i) {
    const int dot = dot_at(i, parts, canvas.height());
    labels[static_cast<size_t>(dot * height / canvas.height())] =
        fmt::format("{:.{}f}", axis.high - i * axis.step, decimals);
  }
  std::string out;
  for (int row = 0; row < height; ++row) {
    const auto& label = labels[static_cast<size_t>(row)];
    const char* edge = label.empty() ? (utf8 ? "│" : "|") : (utf8 ? "┤" : "+");
    out += fmt::format("{:9}{:>{}} {}{}\n", row == 0 ? kAccuracyLabel : "", label, label_width, edge,
                       canvas.row(row));
  }
  return out + epoch_axis(total_epochs, columns, indent, utf8);
}

}  // namespace lockstep
