// `lockstep bench partition` as users run it.
#include <lockstep/tests/catch.h>
#include <nlohmann/json.hpp>

#include <lockstep/tests/app/bench/bench_process.h>

using namespace lockstep::testing;

namespace {

// Runs the command, which must succeed, and returns its --json file.
nlohmann::json json_of(const Words& words) {
  return bench(Words{"bench", "partition"} + words + Words{"--threads", "1"}).json;
}

}  // namespace

TEST_CASE("bench partition: the JSON has one row per scheme, checks and findings") {
  const auto content =
      json_of({"--model", "lenet", "--batch-size", "6", "--micro-batches", "3", "--repeat", "3"});
  CHECK(content.at("bench") == "partition");
  CHECK(content.at("ok") == true);
  CHECK(content.at("complete") == true);
  CHECK(content.at("settings").at("micro_batches") == 3);
  CHECK(content.at("checks").size() == 4);

  const auto& rows = content.at("tables").at(0).at("rows");
  REQUIRE(rows.size() == 5);
  const Words schemes = {"one device", "pipeline parallel", "pipeline parallel, micro-batches",
                         "tensor parallel", "data parallel"};
  for (size_t i = 0; i < schemes.size(); ++i) {
    CHECK(rows[i].at("scheme") == schemes[i]);
    CHECK(rows[i].at("model") == "lenet");
    CHECK(rows[i].at("devices") == "cpux2");
    CHECK(rows[i].at("micro_batches") == (i == 2 ? 3 : 1));
    CHECK(rows[i].at("ms") > 0);
    CHECK(rows[i].at("repeats") == 3);
    CHECK(rows[i].at("over_one") > 0);
    CHECK(rows[i].at("activation_bytes") > 0);
  }
  CHECK(rows[0].at("over_one") == 1);
  CHECK(rows[0].at("bytes") == 0);
  CHECK(rows[1].at("synchronisations") == 2);
  CHECK(rows[2].at("synchronisations") == 6);
  CHECK(rows[2].at("bytes") == rows[1].at("bytes"));  // the stages are found by timing
  CHECK(rows[3].at("synchronisations") == 7);
  CHECK(rows[3].at("bytes") == 6 * (4318 + 4308) * 4);
  CHECK(rows[4].at("synchronisations") == 1);
  CHECK(rows[4].at("bytes") == 2 * 129'120 * 4);
  CHECK(rows[4].at("parameter_bytes") == 129'068 * 4);

  CHECK(content.at("findings").size() == 6);
  for (const auto& finding : content.at("findings")) CHECK(finding.at("values").at("model") == "lenet");
}

TEST_CASE("bench partition: more devices than cores, both models, no ratio from one repetition") {
  const auto content = json_of({"--devices", "cpux3", "--batch-size", "4", "--repeat", "1"});
  const auto& rows = content.at("tables").at(0).at("rows");
  REQUIRE(rows.size() == 10);
  CHECK(rows[0].at("model") == "lenet");
  CHECK(rows[9].at("model") == "mlp");
  for (const auto& row : rows) CHECK(row.at("over_one").is_null());
  CHECK(content.at("checks").size() == 8);
  CHECK(content.at("findings").size() == 2 * 4);  // no findings on time
}
