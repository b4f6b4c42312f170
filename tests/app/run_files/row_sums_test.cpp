// The sums of a run over its rows: texts and JSON.
#include <lockstep/tests/catch.h>

#include <nlohmann/json.hpp>

#include <lockstep/app/run_files/metrics_csv.h>
#include <lockstep/app/run_files/row_sums.h>
#include <lockstep/parallel/trainer.h>

using namespace lockstep;

namespace {

const RowSums kSums = row_sums(TrainSums{.loss = 2302.75, .top1 = 97, .top5 = 505, .rows = 1000, .bad = {}});

}  // namespace

TEST_CASE("a count of rows is shown as a percentage, any other sum as a mean") {
  CHECK(mean_text(kSums, kSums.named.at(0)) == "top1  9.7%");
  CHECK(mean_text(kSums, kSums.named.at(1)) == "top5 50.5%");
  const NamedSum other{
      .kind = {.name = "depth", .epoch_name = "depth", .short_name = "depth", .form = SumForm::kMean},
      .sum = 2500};
  CHECK(mean_text(kSums, other) == "depth 2.5000");
}

TEST_CASE("checkpoints keep the sums, counts as whole numbers") {
  const auto json = to_json(kSums);
  CHECK(json.dump() == R"({"loss":2302.75,"top1":97,"top5":505,"rows":1000})");
  CHECK(to_json(read_row_sums(json)) == json);
  CHECK(to_json(RowSums()).dump() == R"({"loss":0.0,"top1":0,"top5":0,"rows":0})");
  auto without = json;
  without.erase("top5");
  CHECK_THROWS_AS(read_row_sums(without), nlohmann::ordered_json::exception);
}

TEST_CASE("sums are added name by name") {
  RowSums twice;
  twice += kSums;
  twice += kSums;
  CHECK(to_json(twice).dump() == R"({"loss":4605.5,"top1":194,"top5":1010,"rows":2000})");
  CHECK(twice.headline() == .097);
}

TEST_CASE("a test's means have the keys of an epoch, and metrics.csv has a column for each sum") {
  const auto test = row_sums(Evaluation{.loss_sum = 50, .top1 = 25, .top5 = 75, .rows = 100});
  CHECK(test_means(test).dump() == R"({"test_loss":0.5,"test_accuracy":0.25,"test_top5":0.75})");
  CHECK(csv_header() ==
        "event,epoch,step,loss,top1,top5,lr,step_ms,images_per_second,resident_bytes,data_ms,compute_ms,"
        "sync_ms,update_ms,train_loss,train_accuracy,test_loss,test_accuracy,test_top5,train_seconds,"
        "test_seconds\n");
}
