#include <lockstep/app/plot/figures/figures.h>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep::plot {
namespace {

Figure any_figure(std::span<const Source> sources) {
  switch (sources.front().kind) {
    case SourceKind::kMetrics:
      return training_figure(sources);
    case SourceKind::kAllreduce:
      return allreduce_figure(sources);
    case SourceKind::kScaling:
      return scaling_figure(sources);
    case SourceKind::kOverlap:
      return overlap_figure(sources);
    case SourceKind::kSweep:
      return sweep_figure(sources);
    case SourceKind::kConfusion:
      return confusion_figure(sources);
  }
  throw std::logic_error("a kind of file without a figure");
}

}  // namespace

Figure figure_of(std::vector<Source> sources) {
  name_sources(sources);
  const auto& first = sources.front();
  const auto other = std::find_if(sources.begin(), sources.end(),
                                  [&](const Source& source) { return source.kind != first.kind; });
  if (other != sources.end()) {
    throw UsageError(fmt::format("{} is {}, {} is {}: one picture cannot show both", in_quotes(first.path),
                                 describe(first.kind), in_quotes(other->path), describe(other->kind)),
                     "draw them one by one");
  }
  try {
    return any_figure(sources);
  } catch (const Json::exception& error) {
    // "[json.exception.type_error.302] type must be number, but is string"
    const std::string what = error.what();
    const auto end = what.find("] ");
    throw DataError(fmt::format("{} was not written by lockstep: {}",
                                sources.size() == 1 ? in_quotes(first.path) : "one of the files",
                                end == std::string::npos ? what : what.substr(end + 2)),
                    fmt::format("it claims to be {}; write it again", describe(first.kind)));
  }
}

}  // namespace lockstep::plot
