// Files in lockstep's formats, made by hand, and their figures.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/plot/figures/figures.h>

namespace lockstep::testing {

// The figure of files that are given as name and text.
inline plot::Figure figure_from(const std::vector<std::pair<std::string, std::string>>& files) {
  std::vector<plot::Source> sources;
  for (const auto& [name, text] : files) sources.push_back(plot::parse_source(name, text));
  return plot::figure_of(sources);
}

// A run of two epochs.
inline std::string run(const std::string& devices, const std::string& lr) {
  return R"({"event":"plan","model":"lenet","devices":)" + devices +
         R"(,"batch_size":256,"steps_per_epoch":4,"lr":)" + lr + R"(,"seed":3}
{"event":"step","epoch":1,"step":2,"loss":2.5}
{"event":"step","epoch":1,"step":4,"loss":2.25}
{"event":"epoch","epoch":1,"train_accuracy":0.25,"test_loss":2.0,"test_accuracy":0.5}
{"event":"step","epoch":2,"step":3,"loss":1.5}
{"event":"epoch","epoch":2,"train_accuracy":0.625,"test_loss":1.25,"test_accuracy":0.75}
{"event":"end","status":"done","steps":8}
)";
}

inline std::string bench(const std::string& name, const std::string& rest) {
  return R"({"format":"lockstep bench","version":1,"bench":")" + name +
         R"(","environment":{"cpu":"Zen","cores":2,"gpus":[]},)" + rest + "}";
}

inline std::string table(const std::string& name, const std::string& rows) {
  return R"({"name":")" + name + R"(","columns":[],"rows":[)" + rows + "]}";
}

inline std::string sweep(const std::string& cells) {
  return R"({"format":"lockstep sweep","version":1,"cells":[)" + cells + "]}";
}

// The output of `eval --confusion --json`: of four cats one is taken for a dog.
inline constexpr auto kTestOfTwoClasses =
    R"({"model":"lenet","data":"pets","test_rows":6,"confusion":{"classes":["cat","dog"],"counts":[[3,1],[0,2]]}})";

}  // namespace lockstep::testing
