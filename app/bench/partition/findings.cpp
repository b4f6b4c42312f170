#include <lockstep/app/bench/partition/figures.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

using ListOfFigures = std::vector<const SchemeFigures*>;

std::string megabytes(int64_t bytes) { return fmt::format("{:.2f} MB", static_cast<double>(bytes) / 1e6); }

std::string lead(const PartitionFigures& figures) {
  return fmt::format("{}, {}: ", figures.network, figures.devices);
}

std::string percent(double part) { return fmt::format("{:.0f} %", 100 * part); }

// The chapter's three schemes in ascending order of value(scheme).
template <class Value>
ListOfFigures ascending(const PartitionFigures& figures, const Value& value) {
  ListOfFigures schemes = {&figures.pipeline, &figures.tensor_parallel, &figures.data_parallel};
  std::stable_sort(schemes.begin(), schemes.end(),
                   [&](const auto* a, const auto* b) { return value(*a) < value(*b); });
  return schemes;
}

Finding bytes_moved(const PartitionFigures& figures) {
  const auto bytes = [](const SchemeFigures& scheme) { return scheme.cost.traffic.bytes; };
  const auto schemes = ascending(figures, bytes);
  std::vector<std::string> others;
  for (size_t i = 1; i < schemes.size(); ++i) {
    const auto times = static_cast<double>(bytes(*schemes[i])) / static_cast<double>(bytes(*schemes[0]));
    others.push_back(fmt::format("{} {:.1f} x as many", schemes[i]->scheme, times));
  }
  const bool expected = bytes(figures.tensor_parallel) > bytes(figures.pipeline);
  return {
      fmt::format("{}{} moves the fewest bytes, {} per step; {}. The chapter expects tensor parallel to move "
                  "more than pipeline parallel: {}",
                  lead(figures), schemes[0]->scheme, megabytes(bytes(*schemes[0])), fmt::join(others, ", "),
                  expected ? "so it does here" : "here it does not"),
      {{"pipeline_parallel", bytes(figures.pipeline)},
       {"tensor_parallel", bytes(figures.tensor_parallel)},
       {"data_parallel", bytes(figures.data_parallel)}}};
}

Finding synchronisation(const PartitionFigures& figures) {
  const auto count = [](const SchemeFigures& scheme) { return scheme.cost.traffic.synchronisations; };
  const auto schemes = ascending(figures, count);
  const bool expected = schemes.back() == &figures.tensor_parallel && count(*schemes[1]) < count(*schemes[2]);
  const bool pipelined_more = count(figures.pipeline_micro_batches) >= count(figures.tensor_parallel);
  return {fmt::format(
              "{}{} synchronises most often, {} per step; {} {}, {} {}; pipeline parallel with {} "
              "micro-batches {}, {} tensor parallel. The chapter warns that tensor parallel synchronises "
              "often: {}",
              lead(figures), schemes[2]->scheme, counted(count(*schemes[2]), "time"), schemes[1]->scheme,
              count(*schemes[1]), schemes[0]->scheme, count(*schemes[0]),
              figures.pipeline_micro_batches.micro_batches, count(figures.pipeline_micro_batches),
              pipelined_more ? "no less often than" : "less often than",
              expected ? "it does so most often of the three here" : "here others do so as often or more"),
          {{"pipeline_parallel", count(figures.pipeline)},
           {"pipeline_parallel_micro_batches", count(figures.pipeline_micro_batches)},
           {"tensor_parallel", count(figures.tensor_parallel)},
           {"data_parallel", count(figures.data_parallel)}}};
}

Finding speed(const PartitionFigures& figures) {
  ListOfFigures schemes = {&figures.pipeline, &figures.pipeline_micro_batches, &figures.tensor_parallel,
                           &figures.data_parallel};
  std::stable_sort(schemes.begin(), schemes.end(),
                   [](const auto* a, const auto* b) { return *a->over_one < *b->over_one; });
  const auto& best = *schemes.front();
  const double speed_up = 1 / *best.over_one;
  const auto ideal = figures.at_once < figures.size
                         ? fmt::format("{:.1f} x, the number of the {} devices that can work at once",
                                       figures.at_once, figures.size)
                         : fmt::format("{} x", figures.size);
  auto sentence =
      speed_up > 1
          ? fmt::format("{}the fastest is {}, {:.2f} x as fast as one device ({} of the ideal {})",
                        lead(figures), best.scheme, speed_up, percent(speed_up / figures.at_once), ideal)
          : fmt::format(
                "{}no scheme is faster than one device: the fastest, {}, takes {:.2f} x as long "
                "(the ideal speed-up is {})",
                lead(figures), best.scheme, *best.over_one, ideal);
  sentence +=
      &best == &figures.data_parallel
          ? ". Data parallel is what the chapter recommends"
          : fmt::format(". The chapter recommends data parallel, which is {:.2f} x as fast as one device",
                        1 / *figures.data_parallel.over_one);
  return {sentence, {{"fastest", best.scheme}, {"speed_over_one", speed_up}, {"ideal", figures.at_once}}};
}

// If the slowest stage has the share s of the time, m micro-batches take (1 + (m-1) s) / m of one device's
// time: the first micro-batch goes through all stages, each of the others then waits for the slowest.
Finding pipeline_idle(const PartitionFigures& figures) {
  const int m = figures.pipeline_micro_batches.micro_batches;
  const double n = figures.size;
  const auto bubble = [&](double batches) { return (n - 1) / (batches + n - 1); };
  const auto idle = [&](const SchemeFigures& scheme) { return 1 - 1 / (figures.at_once * *scheme.over_one); };
  const double slowest = *std::max_element(figures.stage_shares.begin(), figures.stage_shares.end());
  const double with_these = (1 + (m - 1) * slowest) / m;
  auto sentence = fmt::format("{}a step in {} micro-batches takes {:.2f} x as long as in one. ",
                              lead(figures), m, *figures.micro_ratio);
  Json values = {{"micro_batches", m}, {"ratio", *figures.micro_ratio}};
  if (figures.at_once < n) {
    sentence += "These devices share cores or a GPU, so the theory of idle devices does not apply";
    return {sentence, values};
  }
  sentence += fmt::format(
      "Devices are idle {} of the time with one micro-batch (theory for even stages: (n-1)/n = {}), "
      "{} with {} ((n-1)/(m+n-1) = {}; {} with these stages, where the slowest takes {} of the time)",
      percent(idle(figures.pipeline)), percent(bubble(1)), percent(idle(figures.pipeline_micro_batches)), m,
      percent(bubble(m)), percent(1 - 1 / (n * with_these)), percent(slowest));
  values.update({{"idle_one", idle(figures.pipeline)},
                 {"idle_one_theory", bubble(1)},
                 {"idle_micro", idle(figures.pipeline_micro_batches)},
                 {"idle_micro_theory", bubble(m)},
                 {"slowest_stage", slowest}});
  return {sentence, values};
}

// The chapter: pipeline and tensor parallelism make room for larger networks, data parallelism does not.
Finding memory(const PartitionFigures& figures) {
  constexpr double kRoom = 1.1;  // a scheme has room if a network this many times as large would fit
  const auto share = [&](int64_t bytes, int64_t of) {
    return static_cast<double>(bytes) / static_cast<double>(of);
  };
  std::vector<std::string> texts, room, no_room;
  Json values;
  for (const auto* scheme : {&figures.pipeline, &figures.tensor_parallel, &figures.data_parallel}) {
    const auto parameters = share(scheme->cost.parameter_bytes, figures.one.cost.parameter_bytes);
    const auto activations = share(scheme->cost.activation_bytes, figures.one.cost.activation_bytes);
    texts.push_back(fmt::format("{} {:.1f} % ({})", scheme->scheme, 100 * parameters, percent(activations)));
    (parameters * kRoom <= 1 ? room : no_room).push_back(scheme->scheme);
    values[scheme->scheme] = {{"parameters", parameters}, {"activations", activations}};
  }
  const auto names = [](const std::vector<std::string>& schemes) {
    return schemes.empty() ? "none" : fmt::format("{}", fmt::join(schemes, " and "));
  };
  return {fmt::format(
              "{}share of one device's parameters (activations) on the fullest device: {}. The chapter says "
              "that pipeline and tensor parallel make room for larger networks and data parallel does not. "
              "Room for a tenth more parameters: {}; no room: {}",
              lead(figures), fmt::join(texts, ", "), names(room), names(no_room)),
          values};
}

Finding stages(const PartitionFigures& figures) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < figures.stages.size(); ++i) {
    texts.push_back(fmt::format("{} ({})", figures.stages[i], percent(figures.stage_shares[i])));
  }
  return {fmt::format("{}pipeline stages and their shares of the time of all layers: {}", lead(figures),
                      fmt::join(texts, " | ")),
          {{"stages", figures.stages}, {"shares", figures.stage_shares}}};
}

}  // namespace

std::vector<Finding> partition_findings(const PartitionFigures& figures) {
  std::vector<Finding> findings = {stages(figures), bytes_moved(figures), synchronisation(figures)};
  if (figures.data_parallel.over_one) {  // all schemes have the same number of repetitions
    findings.push_back(speed(figures));
    findings.push_back(pipeline_idle(figures));
  }
  findings.push_back(memory(figures));
  return findings;
}

}  // namespace lockstep
