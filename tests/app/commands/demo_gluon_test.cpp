// `lockstep demo gluon`: the concise chapter's Gluon tab. tests/models compares the numbers with torch's.
#include <lockstep/tests/catch.h>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Returns the rows in brackets that directly follow the line.
Words rows_after(const std::string& line, const Words& all) {
  auto at = std::find(all.begin(), all.end(), line);
  REQUIRE(at != all.end());
  Words rows;
  while (++at != all.end() && at->rfind("  [", 0) == 0) rows.push_back(*at);
  return rows;
}

size_t numbers_in_row(const std::string& row) {
  const std::regex number(R"([ -]\d\.\d\de[+-]\d\d)");
  return static_cast<size_t>(std::distance(std::sregex_iterator(row.begin(), row.end(), number), {}));
}

}  // namespace

TEST_CASE("demo gluon: shards on their devices, parameters read on each, an evaluation on all") {
  const auto result = run_process(program({"demo", "gluon", "--devices", "cpux2"}));
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  const auto all = lines(result.out);
  CHECK(all[0] == "ResNet-18 initialised on [cpu, cpu]: weights N(0, .01), biases 0");

  std::set<std::string> logits;
  for (const auto* replica : {"replica 0 on cpu, 2 rows:", "replica 1 on cpu, 2 rows:"}) {
    const auto rows = rows_after(replica, all);
    CHECK(rows.size() == 2);
    for (const auto& row : rows) {
      CHECK(numbers_in_row(row) == 10);
      logits.insert(row);
    }
  }
  CHECK(logits.size() == 4);  // four different images

  CHECK_THAT(result.out, ContainsSubstring(
                             "0.weight is not initialized on cuda:0; it was only initialized on [cpu, cpu]"));
  const auto kernel = rows_after("its first kernel (3 x 3) in replica 0 on cpu:", all);
  CHECK(kernel.size() == 3);
  for (const auto& row : kernel) CHECK(numbers_in_row(row) == 3);
  CHECK(rows_after("its first kernel (3 x 3) in replica 1 on cpu:", all) == kernel);

  CHECK(std::regex_match(
      all.back(),
      std::regex(R"(evaluated on all devices at once, before training: \d+ of 300 images right)")));
}

TEST_CASE("the demos refuse a text that is no device list") {
  for (const auto* demo : {"scratch", "gluon"}) {
    CHECK_THAT(refusal(program({"demo", demo, "--devices", "gpu"}), 2), ContainsSubstring("'gpu'"));
  }
}
