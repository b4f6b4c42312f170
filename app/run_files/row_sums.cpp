#include <lockstep/app/run_files/row_sums.h>

#include <fmt/format.h>

#include <array>
#include <cmath>

#include <lockstep/app/files/json.h>
#include <lockstep/parallel/trainer.h>

namespace lockstep {
namespace {

// A classification counts the rows whose class has the largest logit, and one of the five largest.
constexpr std::array<SumKind, 2> kKinds{
    {{"top1", "accuracy", "acc", SumForm::kCount}, {"top5", "top5", "top5", SumForm::kCount}}};

RowSums with_counts(double loss, int64_t rows, int64_t top1, int64_t top5) {
  RowSums sums{.loss = loss, .rows = rows};
  sums.named[0].sum = static_cast<double>(top1);
  sums.named[1].sum = static_cast<double>(top5);
  return sums;
}

}  // namespace

std::span<const SumKind> sum_kinds() { return kKinds; }

std::vector<NamedSum> RowSums::zero_sums() {
  std::vector<NamedSum> sums;
  for (const auto& kind : kKinds) sums.push_back({.kind = kind});
  return sums;
}

RowSums& RowSums::operator+=(const RowSums& other) {
  loss += other.loss;
  rows += other.rows;
  for (size_t i = 0; i < named.size(); ++i) named[i].sum += other.named[i].sum;
  return *this;
}

RowSums row_sums(const TrainSums& sums) { return with_counts(sums.loss, sums.rows, sums.top1, sums.top5); }

RowSums row_sums(const Evaluation& result) {
  return with_counts(result.loss_sum, result.rows, result.top1, result.top5);
}

std::string mean_text(const RowSums& sums, const NamedSum& sum) {
  const double mean = sums.mean(sum);
  return sum.kind.form == SumForm::kCount ? fmt::format("{} {:4.1f}%", sum.kind.name, 100 * mean)
                                          : fmt::format("{} {:.4f}", sum.kind.name, mean);
}

Json test_means(const RowSums& test) {
  Json json{{"test_loss", test.mean_loss()}};
  for (const auto& sum : test.named) json[fmt::format("test_{}", sum.kind.epoch_name)] = test.mean(sum);
  return json;
}

Json to_json(const RowSums& sums) {
  Json json{{"loss", sums.loss}};
  for (const auto& [kind, sum] : sums.named) {
    json[kind.name] = kind.form == SumForm::kCount ? Json(std::llround(sum)) : Json(sum);
  }
  json["rows"] = sums.rows;
  return json;
}

RowSums read_row_sums(const Json& json) {
  RowSums sums{.loss = json.at("loss").get<double>(), .rows = json.at("rows").get<int64_t>()};
  for (auto& [kind, sum] : sums.named) {
    const auto& value = json.at(kind.name);
    sum = kind.form == SumForm::kCount ? static_cast<double>(value.get<int64_t>()) : value.get<double>();
  }
  return sums;
}

}  // namespace lockstep
