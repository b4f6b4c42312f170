// The sums of a run over its rows: texts and JSON.
#include <lockstep/tests/catch.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include <lockstep/app/run_files/metrics_csv.h>
#include <lockstep/app/run_files/row_sums.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/run_files/classified.h>

using namespace lockstep;
using lockstep::testing::classified, lockstep::testing::kClassified;
using Json = nlohmann::ordered_json;

namespace {

const auto kSums = classified(2302.75, 1000, 97, 505);

// A language model's: the loss and the perplexity are per token.
const std::vector<MetricKind> kOfTokens = {
    {.name = "perplexity", .own_weight = true, .finish = [](double mean) { return std::exp(mean); }},
    {.name = "right", .type = MetricType::kCount, .own_weight = true}};

RowSums sums_of_tokens() {
  auto sums = zero_sums(kOfTokens);
  sums.loss = 24;
  sums.rows = 4;
  sums.weight = 12;
  sums.metrics[0].sum = 24;
  sums.metrics[1].sum = 3;
  sums.metrics[0].weight = sums.metrics[1].weight = 12;
  return sums;
}

}  // namespace

TEST_CASE("a count of rows is shown as a percentage, any other metric as its finished mean") {
  CHECK(mean_text(kSums, kSums.metrics.at(0)) == "top1  9.7%");
  CHECK(mean_text(kSums, kSums.metrics.at(1)) == "top5 50.5%");
  CHECK(mean_text(kSums, {.kind = {.name = "depth"}, .sum = 2500}) == "depth 2.5000");
  const auto tokens = sums_of_tokens();
  CHECK(mean_text(tokens, tokens.metrics.at(0)) == "perplexity 7.3891");  // e^2
  CHECK(mean_text(tokens, tokens.metrics.at(1)) == "right 25.0%");
  CHECK(accuracy_of(kSums) == .097);
}

TEST_CASE("checkpoints keep the sums, counts as whole numbers, and weights where they are not the rows") {
  const auto json = to_json(kSums);
  CHECK(json.dump() == R"({"loss":2302.75,"top1":97,"top5":505,"rows":1000})");
  CHECK(to_json(zero_sums(kClassified)).dump() == R"({"loss":0.0,"top1":0,"top5":0,"rows":0})");
  const auto of_tokens = to_json(sums_of_tokens());
  CHECK(of_tokens.dump() == R"({"loss":24.0,"perplexity":{"sum":24.0,"weight":12.0},)"
                            R"("right":{"sum":3,"weight":12.0},"rows":4,"weight":12.0})");
  CHECK(to_json(read_row_sums(json)) == json);
  CHECK(to_json(read_row_sums(of_tokens)) == of_tokens);
  CHECK_THROWS_AS(read_row_sums({{"loss", 1}}), Json::exception);
  CHECK_THROWS_AS(read_row_sums({{"loss", 1}, {"rows", 2}, {"top1", "three"}}), Json::exception);
}

TEST_CASE("sums that were read get the kinds of the model, and must be of its metrics") {
  const auto read = declared(read_row_sums(to_json(sums_of_tokens())), kOfTokens);
  CHECK(read["perplexity"] == std::exp(2.));
  CHECK(read.mean_loss() == 2);
  auto turned = sums_of_tokens();  // as from another process, which sorts the names
  std::swap(turned.metrics[0], turned.metrics[1]);
  CHECK(to_json(declared(turned, kOfTokens)) == to_json(sums_of_tokens()));
  CHECK_THROWS_AS(declared(kSums, kOfTokens), WeightsError);
  CHECK_THROWS_AS(declared(kSums, {kClassified[0]}), WeightsError);
  CHECK_THROWS_AS(declared(kSums, {kClassified[0], {.name = "top5"}}), WeightsError);
}

TEST_CASE("a test's means have the keys of an epoch, and metrics.csv has a column for each metric") {
  CHECK(test_means(classified(50, 100, 25, 75)).dump() ==
        R"({"test_loss":0.5,"test_accuracy":0.25,"test_top5":0.75})");
  CHECK(csv_header(csv_columns(kClassified)) ==
        "event,epoch,step,loss,top1,top5,lr,step_ms,images_per_second,resident_bytes,data_ms,compute_ms,"
        "sync_ms,update_ms,train_loss,train_accuracy,test_loss,test_accuracy,test_top5,train_seconds,"
        "test_seconds,loss_scale,skipped\n");
  const std::vector<MetricKind> one = {{.name = "mae"}};
  CHECK(csv_header(csv_columns(one)) ==
        "event,epoch,step,loss,mae,lr,step_ms,images_per_second,resident_bytes,data_ms,compute_ms,sync_ms,"
        "update_ms,train_loss,train_mae,test_loss,test_mae,train_seconds,test_seconds,loss_scale,skipped\n");
}
