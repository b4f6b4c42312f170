// Runs `lockstep bench` as a process and reads its --json file.
#pragma once

#include <lockstep/tests/app/train_process.h>

#include <string_view>

namespace lockstep::testing {

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

struct BenchRun {
  ProcessResult result;
  nlohmann::json json;  // the file
};

// Runs a command that must succeed: {"bench", "step", ...}.
inline BenchRun bench(const Words& words) {
  const lockstep::testing::TempFolder folder;
  const auto file = (folder / "bench.json").string();
  auto result = run_process(program(words + Words{"--json", file}));
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.err.empty());
  for (const auto* line : {"# command", "# machine", "# versions", ": OK ("}) {
    CHECK_THAT(result.out, Catch::Matchers::ContainsSubstring(line));
  }
  auto json = read_json(file);
  CHECK(json.at("format") == "lockstep bench");
  CHECK(json.at("command").get<std::string>().find("lockstep " + words.at(0) + " " + words.at(1)) == 0);
  CHECK(json.at("environment").at("cores").get<int>() >= 1);
  CHECK(json.at("complete") == true);
  CHECK(json.at("ok") == true);
  CHECK(!json.at("checks").empty());
  for (const auto& check : json.at("checks")) CHECK(check.at("ok") == true);
  return {std::move(result), std::move(json)};
}

inline const nlohmann::json& rows_of(const nlohmann::json& json, std::string_view table) {
  for (const auto& each : json.at("tables")) {
    if (each.at("name").get<std::string>() == table) return each.at("rows");
  }
  FAIL("no table " << table);
  return json;
}

}  // namespace lockstep::testing
