// The file of a sweep: what is refused when it is read. file_test.cpp has the command.
#include <lockstep/tests/catch.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/sweep/record.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

Json sweep_document() {
  const CellResult cell{
      .cell = {.devices = "cpu", .replicas = 1, .batch_size = 64, .lr = .1, .epochs = 1},
      .figures = CellFigures{.accuracy = .5, .test_loss = 2, .train_loss = 2, .seconds_per_epoch = 1}};
  return {{"format", "lockstep sweep"},  {"version", 1},
          {"command", "lockstep sweep"}, {"environment", Json::object()},
          {"settings", Json::object()},  {"cells", Json::array({json_of(cell)})}};
}

// The error of a file with this text; empty: it is accepted.
std::string sweep_refusal(const std::string& text) {
  return refusal_of<DataError>([&] { parse_sweep("s.json", text); });
}

// The same with another value at this place.
std::string sweep_refusal(const std::string& at, const Json& value) {
  auto document = sweep_document();
  document[Json::json_pointer(at)] = value;
  return sweep_refusal(document.dump());
}

}  // namespace

TEST_CASE("a sweep's file that is damaged, or of another format, is refused with what is wrong") {
  REQUIRE(sweep_refusal(sweep_document().dump()).empty());
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  auto without = sweep_document();
  without.erase("settings");
  auto mixed = sweep_document();
  mixed["cells"].push_back(mixed["cells"][0]);
  mixed["cells"][1]["accuracy"] = nullptr;
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {sweep_refusal("{\"format\": "), {"damaged", "not JSON"}},
      {sweep_refusal("[1]"), {"damaged"}},
      {sweep_refusal(deep), {"nested more than 64 deep"}},
      {sweep_refusal("{\"a\":" + deep + "}"), {"nested more than 64 deep"}},
      {sweep_refusal(without.dump()), {"damaged", "\"settings\""}},
      {sweep_refusal("/format", "lockstep bench"), {"\"lockstep bench\"", "\"lockstep sweep\""}},
      {sweep_refusal("/version", 2), {"version 2", "version 1"}},
      {sweep_refusal("/cells", 3), {"damaged"}},
      {sweep_refusal("/cells/0/lr", "fast"), {"damaged", "cell 1"}},
      {sweep_refusal("/cells/0/test_loss", nullptr), {"damaged", "cell 1"}},
      {sweep_refusal(mixed.dump()), {"damaged", "1 of 2 cells have an accuracy"}}};
  for (const auto& [refusal, says] : cases) {
    for (const auto& part : says) CHECK_THAT(refusal, ContainsSubstring(part));
  }
}

TEST_CASE("a number of a sweep's file that a conversion would change, or out of range, is refused") {
  const std::vector<std::pair<std::string, Json>> numbers = {
      {"batch_size", 1e20}, {"batch_size", 64.0},     {"batch_size", uint64_t{1} << 63},
      {"batch_size", 0},    {"replicas", 4294967297}, {"replicas", -1},
      {"threads", 1e9},     {"epochs", 1.9},          {"epochs", "1"},
      {"lr", -.1},          {"accuracy", 1.5},        {"accuracy", -.5}};
  for (const auto& [key, value] : numbers) {
    CHECK_THAT(sweep_refusal("/cells/0/" + key, value),
               ContainsSubstring("cell 1: its \"" + key + "\" is " + value.dump()));
  }
}

TEST_CASE("a sweep's file that is no file is refused") {
  const TempFolder folder;
  const auto refusal = [](const std::string& path) {
    return refusal_of<DataError>([&] { SweepRecord::resume(path); });
  };
  CHECK_THAT(refusal(folder.path().string()), ContainsSubstring("it is a folder"));
  CHECK_THAT(refusal("/dev/zero"), ContainsSubstring("not a regular file"));
}
