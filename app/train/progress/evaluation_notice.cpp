#include <lockstep/app/train/progress/evaluation_notice.h>

#include <fmt/format.h>

#include <utility>

#include <lockstep/support/counted.h>

namespace lockstep {

EvaluationNotice::EvaluationNotice(SecondsClock clock, Tell tell)
    : clock_(std::move(clock)), tell_(std::move(tell)) {
  lines_.start(clock_());
}

void EvaluationNotice::operator()(int64_t rows_done, int64_t rows) {
  const double now = clock_();
  if (!lines_.due(now) || rows_done == rows) return;
  tell_(fmt::format("evaluating: {} of {} images", with_commas(rows_done), with_commas(rows)));
  lines_.shown(now);
}

}  // namespace lockstep
