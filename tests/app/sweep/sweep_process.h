// Runs `lockstep sweep` as a process.
#pragma once

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>

namespace lockstep::testing {

// devices, batch size, learning rate, epochs
using Axes = std::tuple<std::string, int, double, int>;

// The flags of a small, quick sweep. `words` replace its own values of the same flags.
inline Words small(const SmallData& data, const Words& words) {
  const std::vector<std::pair<std::string, std::string>> defaults = {{"--data", data.folder()},
                                                                     {"--limit-train", "128"},
                                                                     {"--batch-size", "64"},
                                                                     {"--threads", "1"},
                                                                     {"--epochs", "1"}};
  Words all;
  for (const auto& [flag, value] : defaults) {
    if (std::find(words.begin(), words.end(), flag) == words.end()) all = all + Words{flag, value};
  }
  return all + words;
}

inline Process sweep(const SmallData& data, const Words& words) {
  return program(Words{"sweep"} + small(data, words));
}

inline nlohmann::json read(const std::filesystem::path& path) {
  return nlohmann::json::parse(read_file(path));
}

inline void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

// The output and the file of a sweep that must succeed.
struct Done {
  std::string out, err;
  nlohmann::json file;
};

inline Done finished(const SmallData& data, const Words& words) {
  const testing::TempFolder folder;
  const auto path = folder / "sweep.json";
  const auto result = run_process(sweep(data, words + Words{"--json", path.string()}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return {result.out, result.err, read(path)};
}

// The rows of the cells, without the lines that follow them.
inline Words rows_of(const std::string& out) {
  Words rows;
  for (const auto& line : lines(out)) {
    if (line[0] != '#') rows.push_back(line);
    if (line[0] == '#' && !rows.empty()) break;
  }
  return rows;
}

inline std::vector<Axes> axes_of(const nlohmann::json& file) {
  std::vector<Axes> axes;
  for (const auto& cell : file.at("cells")) {
    axes.emplace_back(cell.at("devices"), cell.at("batch_size"), cell.at("lr"), cell.at("epochs"));
  }
  return axes;
}

}  // namespace lockstep::testing
