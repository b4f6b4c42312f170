#include <lockstep/app/run_files/row_sums.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <lockstep/app/files/json.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// Metrics that lines and events of epochs name otherwise.
struct OtherNames {
  const char* name;
  const char* of_epochs;
  const char* in_short;
};

constexpr OtherNames kOtherNames[] = {{"top1", "accuracy", "acc"}};

const OtherNames* other_names(const MetricKind& kind) {
  const auto* found = std::ranges::find(kOtherNames, kind.name, &OtherNames::name);
  return found == std::end(kOtherNames) ? nullptr : found;
}

Json number_json(const MetricKind& kind, double number) {
  return kind.type == MetricType::kCount ? Json(std::llround(number)) : Json(number);
}

MetricSum read_metric(const std::string& name, const Json& json) {
  MetricSum metric{.kind = {.name = name, .own_weight = json.is_object()}};
  const auto& sum = metric.kind.own_weight ? json.at("sum") : json;
  if (sum.is_number_integer()) metric.kind.type = MetricType::kCount;
  metric.sum = sum.get<double>();
  if (metric.kind.own_weight) metric.weight = json.at("weight").get<double>();
  return metric;
}

}  // namespace

std::string epoch_name(const MetricKind& kind) {
  const auto* other = other_names(kind);
  return other ? other->of_epochs : kind.name;
}

std::string short_name(const MetricKind& kind) {
  const auto* other = other_names(kind);
  return other ? other->in_short : kind.name;
}

std::string headline_text(const RowSums& sums) {
  if (sums.metrics.empty()) return "";
  const auto& first = sums.metrics.front();
  return fmt::format("{} {:.3f}", short_name(first.kind), sums.value(first));
}

bool counts_classes(std::span<const MetricKind> metrics) {
  return !metrics.empty() && epoch_name(metrics.front()) == "accuracy";
}

std::optional<double> accuracy_of(const RowSums& sums) {
  if (sums.metrics.empty() || epoch_name(sums.metrics.front().kind) != "accuracy") return std::nullopt;
  return sums.value(sums.metrics.front());
}

std::string mean_text(const RowSums& sums, const MetricSum& metric) {
  const double value = sums.value(metric);
  const bool share = metric.kind.type == MetricType::kCount && !metric.kind.finish;
  return share ? fmt::format("{} {:4.1f}%", metric.kind.name, 100 * value)
               : fmt::format("{} {:.4f}", metric.kind.name, value);
}

Json test_means(const RowSums& test) {
  Json json{{"test_loss", test.mean_loss()}};
  for (const auto& metric : test.metrics) {
    json[fmt::format("test_{}", epoch_name(metric.kind))] = test.value(metric);
  }
  return json;
}

Json to_json(const RowSums& sums) {
  Json json{{"loss", sums.loss}};
  for (const auto& [kind, sum, weight] : sums.metrics) {
    json[kind.name] =
        kind.own_weight ? Json{{"sum", number_json(kind, sum)}, {"weight", weight}} : number_json(kind, sum);
  }
  json["rows"] = sums.rows;
  if (sums.weight != static_cast<double>(sums.rows)) json["weight"] = sums.weight;
  return json;
}

RowSums read_row_sums(const Json& json) {
  RowSums sums{.loss = json.at("loss").get<double>(), .rows = json.at("rows").get<int64_t>()};
  sums.weight = json.value("weight", static_cast<double>(sums.rows));
  for (const auto& [name, value] : json.items()) {
    if (name != "loss" && name != "rows" && name != "weight")
      sums.metrics.push_back(read_metric(name, value));
  }
  return sums;
}

RowSums declared(RowSums sums, const std::vector<MetricKind>& metrics) {
  std::vector<MetricSum> in_order;
  for (const auto& kind : metrics) {
    const auto found = std::ranges::find_if(sums.metrics, [&](const MetricSum& sum) {
      return sum.kind.name == kind.name && sum.kind.type == kind.type &&
             sum.kind.own_weight == kind.own_weight;
    });
    if (found != sums.metrics.end()) in_order.push_back({kind, found->sum, found->weight});
  }
  if (in_order.size() != metrics.size() || sums.metrics.size() != metrics.size()) {
    throw WeightsError("the checkpoint has sums of other metrics than the model declares",
                       "go on with the model that the run has trained");
  }
  sums.metrics = std::move(in_order);
  return sums;
}

}  // namespace lockstep
