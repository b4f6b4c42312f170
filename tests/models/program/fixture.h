// Programs of the folder fixtures/, and what Python computed with them (make_fixtures.py).
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/models/program.h>
#include <lockstep/support/batch.h>

namespace lockstep::testing {

inline std::filesystem::path fixture_path(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_PROGRAM_FIXTURES) / (name + ".pt2");
}

struct Fixture {
  explicit Fixture(const std::string& fixture) : name(fixture) {
    std::ifstream in(std::filesystem::path(LOCKSTEP_PROGRAM_FIXTURES) / (name + ".json"));
    numbers = nlohmann::json::parse(in);
    program = read_program(fixture_path(name));
  }

  // The batch of a step, as make_fixtures.py makes it, of `rows` rows; by default as many as Python's.
  Batch batch(int64_t step, int64_t rows = -1) const {
    std::vector<Batch::Item> items;
    for (const auto& spec : numbers.at("inputs"))
      items.push_back({spec.at("name"), tensor(spec, step, rows)});
    const auto& target = numbers.at("target");
    if (!target.is_null()) items.push_back({target.at("name"), tensor(target, step, rows), Role::kTarget});
    if (own_loss()) items.back().role = Role::kTarget;
    return batch_of(items);
  }

  bool own_loss() const { return numbers.at("loss") == "own"; }

  ModelFactory factory(Kernels kernels = Kernels::kAuto) const {
    const std::string loss = numbers.at("loss"), output = numbers.at("output");
    if (own_loss()) return program_factory_own_loss(program, output, kernels);
    return program_factory(program,
                           loss == "mse"        ? mse()
                           : loss == "sequence" ? token_cross_entropy()
                                                : classification(),
                           output, kernels);
  }

  // Python's results in this precision: losses, evaluation, sums of absolute weights.
  const nlohmann::json& run(const std::string& precision) const {
    for (const auto& one : numbers.at("runs")) {
      if (one.at("precision") == precision) return one;
    }
    throw std::runtime_error("no run in " + precision);
  }

  std::string name;
  nlohmann::json numbers;
  std::shared_ptr<const Program> program;

 private:
  static torch::Tensor tensor(const nlohmann::json& spec, int64_t step, int64_t rows) {
    std::vector<int64_t> shape = spec.at("shape");
    if (rows >= 0) shape[0] = rows;
    const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    const auto number = [&](const char* key) { return spec.at(key).get<int64_t>(); };
    const auto i = torch::arange(count, torch::kInt64);
    auto values = torch::remainder(i * number("a") + step * number("b"), number("m")) + number("shift");
    if (spec.at("dtype") == "float32") values = values.to(torch::kFloat32) / number("divisor");
    return values.view(shape);
  }

  static Batch batch_of(const std::vector<Batch::Item>& items) {
    switch (items.size()) {
      case 1:
        return Batch{items[0]};
      case 2:
        return Batch{items[0], items[1]};
      default:
        return Batch{items.at(0), items.at(1), items.at(2)};
    }
  }
};

// All fixtures with numbers in fp32 and bf16.
inline const std::vector<std::string> kFixtures = {"any_length",    "assigned_buffer",
                                                   "channels_last", "constants",
                                                   "conv_bn",       "counted_apart",
                                                   "dict_output",   "dropout",
                                                   "encoder",       "frozen_layers",
                                                   "frozen_norm",   "functional_norm",
                                                   "fused_norms",   "gru",
                                                   "instance_norm", "lm",
                                                   "lstm",          "mlp",
                                                   "narrowed",      "no_grad",
                                                   "norm_of_rows",  "one_row",
                                                   "own_loss",      "own_loss_rows",
                                                   "root_norm",     "torch_2_12",
                                                   "two_inputs",    "view_of_buffer"};

}  // namespace lockstep::testing
