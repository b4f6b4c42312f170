#include <lockstep/app/train/progress/live_line.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

constexpr size_t kFewestCells = 5;
constexpr size_t kMostCells = 40;
constexpr int kEighths = 8;

// Rounded down: only what is done is 100%.
int whole_percent(double share) {
  return static_cast<int>(std::floor(100 * std::clamp(share, 0., 1.) + 1e-9));
}

std::string bar_of(double share, size_t cells, bool utf8) {
  constexpr std::array<std::string_view, kEighths> kParts = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<size_t>(
      std::floor(std::clamp(share, 0., 1.) * static_cast<double>(kEighths * cells) + 1e-9));
  const size_t full = eighths / kEighths, part = eighths % kEighths;
  std::string text;
  for (size_t i = 0; i < full; ++i) text += utf8 ? "█" : "#";
  if (!utf8) return text + std::string(cells - full, '.');
  text += kParts[part];
  return text + std::string(cells - full - (part > 0), ' ');
}

std::string loss_text(double loss) {
  return std::abs(loss) < 1e4 ? fmt::format("loss {:.4f}", loss) : fmt::format("loss {:.3g}", loss);
}

// A figure that may be left out: `rank` 0 goes last.
struct LiveText {
  int rank;
  std::string text;
};

// In the order of the line.
std::vector<LiveText> texts_of(const LiveFigures& figures) {
  std::vector<LiveText> texts;
  if (const auto& left = figures.seconds_left) texts.push_back({1, duration_text(*left) + " left"});
  if (const auto& evaluated = figures.evaluated) {
    texts.push_back({0, fmt::format("evaluating {:2}%", whole_percent(*evaluated))});
  } else if (const auto& speed = figures.images_per_second) {
    texts.push_back({4, with_commas(std::llround(std::min(*speed, 1e15))) + " " + figures.speed_unit});
  }
  if (const auto& sums = figures.sums) {
    texts.push_back({2, loss_text(sums->mean_loss())});
    if (!sums->metrics.empty()) texts.push_back({3, mean_text(*sums, sums->metrics.front())});
  }
  return texts;
}

std::string joined_texts(const std::vector<LiveText>& figures) {
  std::string text;
  for (const auto& figure : figures) text += " | " + figure.text;
  return text;
}

}  // namespace

std::string live_line(const LiveFigures& figures, size_t width, bool utf8, const Style& style) {
  const auto epochs = fmt::format("{}", figures.epochs);
  const auto epoch = fmt::format("epoch {:>{}}/{} ", figures.epoch, epochs.size(), epochs);
  const auto share = fmt::format("{:3}%", whole_percent(figures.done));
  if (epoch.size() + share.size() > width) return share.size() > width ? "" : share;

  const size_t room = width - epoch.size() - share.size();
  auto texts = texts_of(figures);
  const auto fits = [&] { return joined_texts(texts).size() + kFewestCells + 1 <= room; };
  while (!texts.empty() && !fits()) texts.erase(std::ranges::max_element(texts, {}, &LiveText::rank));
  const auto rest = joined_texts(texts);
  if (room - rest.size() < kFewestCells + 1) return epoch + share;
  const size_t cells = std::min(room - rest.size() - 1, kMostCells);
  return epoch + style.cyan(bar_of(figures.done, cells, utf8)) + " " + share + rest;
}

double seconds_of(const WorkLeft& left) {
  return static_cast<double>(left.steps) * left.seconds_per_step +
         left.evaluations * left.seconds_per_evaluation;
}

std::string duration_text(double seconds) {
  constexpr int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  const auto whole = static_cast<int64_t>(std::llround(std::clamp(seconds, 0., 1e12)));
  if (whole >= 4 * kDay) return fmt::format("{} d {} h", whole / kDay, whole % kDay / kHour);
  const auto minutes = whole % kHour / kMinute, rest = whole % kMinute;
  if (whole < kHour) return fmt::format("{}:{:02}", minutes, rest);
  return fmt::format("{}:{:02}:{:02}", whole / kHour, minutes, rest);
}

}  // namespace lockstep
