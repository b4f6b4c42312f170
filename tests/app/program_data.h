// Files for runs of exported programs: the programs of tests/models/program/fixtures, and data for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::testing {

inline std::string fixture(const std::string& name) {
  return std::string(LOCKSTEP_PROGRAM_FIXTURES) + "/" + name;
}

// The numbers that Python has computed with the program.
inline nlohmann::json fixture_json(const std::string& name) {
  std::ifstream in(fixture(name + ".json"));
  return nlohmann::json::parse(in);
}

// Writes `train.NAME` and `test.NAME` of the fixture's inputs and its target, with so many rows, by the
// formula of make_fixtures.py for step 0: as many rows as the fixture's are its first batch.
inline std::string write_program_data(const std::filesystem::path& path, const nlohmann::json& python,
                                      int64_t train_rows, int64_t test_rows) {
  nlohmann::ordered_json header;
  std::string bytes;
  const auto add = [&](const std::string& part, const nlohmann::json& tensor, int64_t rows) {
    auto shape = tensor.at("shape").get<std::vector<int64_t>>();
    shape.front() = rows;
    int64_t count = 1;
    for (const auto size : shape) count *= size;
    const bool real = tensor.at("dtype") == "float32";
    const auto begin = bytes.size();
    for (int64_t i = 0; i < count; ++i) {
      const auto integer = i * tensor.at("a").get<int64_t>() % tensor.at("m").get<int64_t>() +
                           tensor.at("shift").get<int64_t>();
      const auto number = static_cast<float>(integer) / tensor.at("divisor").get<float>();
      const auto* from =
          real ? reinterpret_cast<const char*>(&number) : reinterpret_cast<const char*>(&integer);
      bytes.append(from, real ? sizeof(number) : sizeof(integer));
    }
    header[part + "." + tensor.at("name").get<std::string>()] = {
        {"dtype", real ? "F32" : "I64"}, {"shape", shape}, {"data_offsets", {begin, bytes.size()}}};
  };
  for (const auto& [part, rows] : {std::pair("train", train_rows), std::pair("test", test_rows)}) {
    for (const auto& input : python.at("inputs")) add(part, input, rows);
    if (!python.at("target").is_null()) add(part, python.at("target"), rows);
  }
  auto text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), sizeof(size));
  out << text << bytes;
  return path.string();
}

}  // namespace lockstep::testing
