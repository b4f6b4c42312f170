#include <lockstep/app/bench/partition/findings.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <lockstep/app/report/report.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

using Ways = std::vector<const WayFigures*>;

std::string megabytes(int64_t bytes) { return fmt::format("{:.2f} MB", static_cast<double>(bytes) / 1e6); }

std::string lead(const PartitionFigures& figures) {
  return fmt::format("{}, {}: ", figures.network, figures.devices);
}

std::string percent(double part) { return fmt::format("{:.0f} %", 100 * part); }

// The chapter's three, from the least to the most.
template <class Value>
Ways ascending(const PartitionFigures& figures, const Value& value) {
  Ways ways = {&figures.network_wise, &figures.layer_wise, &figures.data_wise};
  std::stable_sort(ways.begin(), ways.end(),
                   [&](const auto* a, const auto* b) { return value(*a) < value(*b); });
  return ways;
}

Finding bytes_moved(const PartitionFigures& figures) {
  const auto bytes = [](const WayFigures& way) { return way.cost.traffic.bytes; };
  const auto ways = ascending(figures, bytes);
  std::vector<std::string> others;
  for (size_t i = 1; i < ways.size(); ++i) {
    const auto times = static_cast<double>(bytes(*ways[i])) / static_cast<double>(bytes(*ways[0]));
    others.push_back(fmt::format("{} {:.1f} x as many", ways[i]->way, times));
  }
  const bool expected = bytes(figures.layer_wise) > bytes(figures.network_wise);
  return {fmt::format("{}{} moves the fewest bytes, {} a step; {}. The chapter expects layer-wise to move "
                      "more than network-wise: {}",
                      lead(figures), ways[0]->way, megabytes(bytes(*ways[0])), fmt::join(others, ", "),
                      expected ? "so it does here" : "here it does not"),
          {{"network_wise", bytes(figures.network_wise)},
           {"layer_wise", bytes(figures.layer_wise)},
           {"data_wise", bytes(figures.data_wise)}}};
}

Finding meetings(const PartitionFigures& figures) {
  const auto count = [](const WayFigures& way) { return way.cost.traffic.meetings; };
  const auto ways = ascending(figures, count);
  const bool expected = ways.back() == &figures.layer_wise && count(*ways[1]) < count(*ways[2]);
  const bool pipelined_more = count(figures.micro_batches) >= count(figures.layer_wise);
  return {fmt::format(
              "{}devices meet most often {}, {} a step; {} {}, {} {}; {} micro-batches make network-wise's "
              "{}, {} layer-wise's. The chapter warns of layer-wise's many: {}",
              lead(figures), ways[2]->way, counted(count(*ways[2]), "time"), ways[1]->way, count(*ways[1]),
              ways[0]->way, count(*ways[0]), figures.micro_batches.micro_batches,
              count(figures.micro_batches), pipelined_more ? "no fewer than" : "fewer than",
              expected ? "it has the most of the three here" : "here others meet as often or more"),
          {{"network_wise", count(figures.network_wise)},
           {"network_wise_micro_batches", count(figures.micro_batches)},
           {"layer_wise", count(figures.layer_wise)},
           {"data_wise", count(figures.data_wise)}}};
}

Finding speed(const PartitionFigures& figures) {
  Ways ways = {&figures.network_wise, &figures.micro_batches, &figures.layer_wise, &figures.data_wise};
  std::stable_sort(ways.begin(), ways.end(),
                   [](const auto* a, const auto* b) { return *a->over_one < *b->over_one; });
  const auto& best = *ways.front();
  const double speed_up = 1 / *best.over_one;
  const auto ideal = figures.at_once < figures.size
                         ? fmt::format("{:.1f} x: so many of the {} devices can work at a time",
                                       figures.at_once, figures.size)
                         : fmt::format("{} x", figures.size);
  auto sentence =
      speed_up > 1
          ? fmt::format("{}the fastest is {}, {:.2f} x as fast as one device ({} of the ideal {})",
                        lead(figures), best.way, speed_up, percent(speed_up / figures.at_once), ideal)
          : fmt::format(
                "{}no way is faster than one device: the nearest, {}, takes {:.2f} x as long "
                "(the ideal would be {})",
                lead(figures), best.way, *best.over_one, ideal);
  sentence += &best == &figures.data_wise
                  ? ". Data-wise is what the chapter recommends"
                  : fmt::format(". The chapter recommends data-wise, which is {:.2f} x as fast as one device",
                                1 / *figures.data_wise.over_one);
  return {sentence, {{"fastest", best.way}, {"speed_over_one", speed_up}, {"ideal", figures.at_once}}};
}

// With stages of unequal times, of which the slowest has the share s, m micro-batches take (1 + (m-1) s) / m
// of one device's time: the first goes through all stages, each of the others then comes out behind the
// slowest.
Finding pipeline(const PartitionFigures& figures) {
  const int m = figures.micro_batches.micro_batches;
  const double n = figures.size;
  const auto bubble = [&](double batches) { return (n - 1) / (batches + n - 1); };
  const auto idle = [&](const WayFigures& way) { return 1 - 1 / (figures.at_once * *way.over_one); };
  const double slowest = *std::max_element(figures.stage_shares.begin(), figures.stage_shares.end());
  const double with_these = (1 + (m - 1) * slowest) / m;
  auto sentence = fmt::format("{}a step in {} micro-batches takes {:.2f} x as long as in one. ",
                              lead(figures), m, *figures.micro_ratio);
  Json values = {{"micro_batches", m}, {"ratio", *figures.micro_ratio}};
  if (figures.at_once < n) {
    sentence +=
        "Devices that share cores or a GPU work one instead of the other, which the theory of idle "
        "devices does not know";
    return {sentence, values};
  }
  sentence += fmt::format(
      "Time in which devices do not compute: {} with one micro-batch (theory for even stages: (n-1)/n = {}), "
      "{} with {} ((n-1)/(m+n-1) = {}; {} with these stages, of which the slowest has {} of the time)",
      percent(idle(figures.network_wise)), percent(bubble(1)), percent(idle(figures.micro_batches)), m,
      percent(bubble(m)), percent(1 - 1 / (n * with_these)), percent(slowest));
  values.update({{"idle_one", idle(figures.network_wise)},
                 {"idle_one_theory", bubble(1)},
                 {"idle_micro", idle(figures.micro_batches)},
                 {"idle_micro_theory", bubble(m)},
                 {"slowest_stage", slowest}});
  return {sentence, values};
}

// The chapter: network-wise and layer-wise make room for larger networks, data-wise does not.
Finding memory(const PartitionFigures& figures) {
  constexpr double kRoom = 1.1;  // so many times as large a network would have to fit
  const auto share = [&](int64_t bytes, int64_t of) {
    return static_cast<double>(bytes) / static_cast<double>(of);
  };
  std::vector<std::string> texts, room, no_room;
  Json values;
  for (const auto* way : {&figures.network_wise, &figures.layer_wise, &figures.data_wise}) {
    const auto parameters = share(way->cost.parameter_bytes, figures.one.cost.parameter_bytes);
    const auto activations = share(way->cost.activation_bytes, figures.one.cost.activation_bytes);
    texts.push_back(fmt::format("{} {:.1f} % ({})", way->way, 100 * parameters, percent(activations)));
    (parameters * kRoom <= 1 ? room : no_room).push_back(way->way);
    values[way->way] = {{"parameters", parameters}, {"activations", activations}};
  }
  const auto names = [](const std::vector<std::string>& ways) {
    return ways.empty() ? "none" : fmt::format("{}", fmt::join(ways, " and "));
  };
  return {
      fmt::format("{}of the network's parameters (of one device's activations) the fullest device holds {}. "
                  "The chapter says that network-wise and layer-wise make room for larger networks and "
                  "data-wise does not. A tenth or more of room for parameters: {}; less: {}",
                  lead(figures), fmt::join(texts, ", "), names(room), names(no_room)),
      values};
}

Finding stages(const PartitionFigures& figures) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < figures.stages.size(); ++i) {
    texts.push_back(fmt::format("{} ({})", figures.stages[i], percent(figures.stage_shares[i])));
  }
  return {fmt::format("{}stages of network-wise, with their parts of all layers' time: {}", lead(figures),
                      fmt::join(texts, " | ")),
          {{"stages", figures.stages}, {"shares", figures.stage_shares}}};
}

}  // namespace

std::vector<Finding> partition_findings(const PartitionFigures& figures) {
  std::vector<Finding> findings = {stages(figures), bytes_moved(figures), meetings(figures)};
  if (figures.data_wise.over_one) {  // all of them or none: they have the same turns
    findings.push_back(speed(figures));
    findings.push_back(pipeline(figures));
  }
  findings.push_back(memory(figures));
  return findings;
}

}  // namespace lockstep
