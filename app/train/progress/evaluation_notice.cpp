#include <lockstep/app/train/progress/evaluation_notice.h>

#include <fmt/format.h>

#include <utility>

#include <lockstep/support/counted.h>

namespace lockstep {

EvaluationNotice::EvaluationNotice(std::string row_noun, SecondsClock clock, Tell tell)
    : row_noun_(std::move(row_noun)), clock_(std::move(clock)), tell_(std::move(tell)) {
  lines_.start(clock_());
}

void EvaluationNotice::operator()(int64_t rows_done, int64_t rows) {
  const double now = clock_();
  if (!lines_.due(now) || rows_done == rows) return;
  tell_(fmt::format("evaluating: {} of {} {}s", with_commas(rows_done), with_commas(rows), row_noun_));
  lines_.shown(now);
}

}  // namespace lockstep
