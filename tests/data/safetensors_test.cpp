// Values in safetensors files, compared with one that Python's safetensors package wrote:
// tests/reference/safetensors_file.py.
#include <lockstep/tests/catch.h>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/data/safetensors.h>
#include <lockstep/tests/data/safetensors_files.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// The contents of the JSON file beside the Python file, as contiguous tensors.
std::map<std::string, torch::Tensor> python_tensors() {
  const std::map<std::string, torch::ScalarType> dtypes = {
      {"F64", torch::kFloat64},   {"F32", torch::kFloat32}, {"F16", torch::kFloat16},
      {"BF16", torch::kBFloat16}, {"I64", torch::kInt64},   {"I32", torch::kInt32},
      {"I16", torch::kInt16},     {"I8", torch::kInt8},     {"U8", torch::kUInt8},
      {"BOOL", torch::kBool}};
  std::map<std::string, torch::Tensor> tensors;
  const auto file = json::parse(std::ifstream(kReference + ".json"));
  for (const auto& [name, item] : file.at("tensors").items()) {
    const auto dtype = dtypes.at(item.at("dtype"));
    const auto values = at::isFloatingType(dtype)
                            ? torch::tensor(item.at("values").get<std::vector<double>>(), torch::kFloat64)
                            : torch::tensor(item.at("values").get<std::vector<int64_t>>(), torch::kInt64);
    tensors[name] = values.to(dtype).reshape(item.at("shape").get<std::vector<int64_t>>());
  }
  return tensors;
}

const std::map<std::string, std::string> kPythonMetadata = {
    {"note", "quoted \"text\", a back\\slash,\na new line and \u00fc"}};

// The same tensors in another order, some of them views with other strides, offsets or a lazy negation.
TensorFile python_file() {
  TensorFile file = {{}, kPythonMetadata};
  for (auto& [name, tensor] : python_tensors()) file.tensors.insert(file.tensors.begin(), {name, tensor});
  for (auto& [name, tensor] : file.tensors) {
    if (name == "conv.weight") tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    if (name == "float") tensor = tensor.t().contiguous().t();
    if (name == "double") tensor = at::_neg_view(-tensor);
    if (name == "int64") tensor = torch::stack({tensor, tensor + 1}, 1).select(1, 0);
  }
  return file;
}

}  // namespace

TEST_CASE("the header of a file tells its tensors' names, dtypes and sizes, without values") {
  const auto expected = python_tensors();
  const auto shapes = read_safetensors_shapes(kReference + ".safetensors");
  CHECK(shapes.metadata == kPythonMetadata);
  REQUIRE(shapes.tensors.size() == expected.size());
  for (const auto& [name, tensor] : shapes.tensors) {
    INFO(name);
    CHECK(tensor.is_meta());
    CHECK(tensor.scalar_type() == expected.at(name).scalar_type());
    CHECK(tensor.sizes() == expected.at(name).sizes());
  }
}

TEST_CASE("a file of Python's package is read with the same values") {
  const auto expected = python_tensors();
  const auto file = load_safetensors(kReference + ".safetensors");
  CHECK(file.metadata == kPythonMetadata);
  REQUIRE(file.tensors.size() == expected.size());
  for (const auto& [name, tensor] : file.tensors) {
    INFO(name);
    CHECK(same(tensor, expected.at(name)));
    CHECK((tensor.is_cpu() && tensor.is_contiguous() && !tensor.requires_grad()));
  }
  // In order of the data: the widest first, then by name.
  CHECK(file.tensors.front().name == "int64");
  CHECK(file.tensors.back().name == "flags");
  // Values that rounding or a wrong byte order would change.
  CHECK(file.tensors.front().tensor[0].item<int64_t>() == INT64_MIN);
  CHECK(expected.at("int32")[2].item<int>() == 258);
  CHECK(std::signbit(expected.at("float")[1][0].item<float>()));
}

TEST_CASE("the same tensors are saved byte for byte as Python's package saves them") {
  const TempFolder folder;
  const auto file = python_file();
  REQUIRE(file.tensors.size() == 14);
  save_safetensors(folder / "saved", file, /*overwrite=*/false);
  CHECK(read_file(folder / "saved") == read_file(kReference + ".safetensors"));
}

// Run by safetensors_python.sh.
TEST_CASE("a file for Python", "[.]") {
  const char* path = std::getenv("LOCKSTEP_TEST_FILE");
  REQUIRE(path != nullptr);
  save_safetensors(path, python_file(), /*overwrite=*/false);
}

// Run by safetensors_both_ways.sh.
TEST_CASE("files of Python are saved again", "[.]") {
  const char* folder = std::getenv("LOCKSTEP_TEST_FOLDER");
  REQUIRE(folder != nullptr);
  size_t read = 0, refused = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    auto name = entry.path().filename().string();
    INFO(name);
    if (name.starts_with("refused_")) {
      CHECK_THAT(failure(entry.path()), ContainsSubstring("has dtype"));
      ++refused;
    } else if (name.starts_with("python_")) {
      const auto file = load_safetensors(entry.path());
      save_safetensors(fs::path(folder) / name.replace(0, 6, "lockstep"), file, /*overwrite=*/false);
      ++read;
    }
  }
  CHECK(read == 60);
  CHECK(refused == 3);
}

TEST_CASE("tensors of any strides keep their values") {
  const TempFolder folder;
  const auto base = torch::arange(2 * 3 * 4 * 5, torch::kFloat32).view({2, 3, 4, 5});
  const std::vector<NamedTensor> tensors = {
      {"0 permuted", base.permute({3, 1, 0, 2})},
      {"1 channels last", base.contiguous(at::MemoryFormat::ChannelsLast)},
      {"2 expanded", base[0][0][0].expand({4, 5})},
      {"3 strided", base.slice(3, 1, 5, 2)},
      {"4 part", base.flatten().narrow(0, 7, 11)},
      {"5 needs a gradient", (base * 2).requires_grad_()},
      {"6 negated", at::_neg_view(base)},
      {"7 scalar", base[1][2][3][4]},
      {"8 empty", base.narrow(1, 0, 0)}};
  save_safetensors(folder / "file", {tensors, {}}, false);
  const auto found = load_safetensors(folder / "file");
  REQUIRE(found.tensors.size() == tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    INFO(tensors[i].name);
    CHECK(found.tensors[i].name == tensors[i].name);
    CHECK(same(found.tensors[i].tensor, tensors[i].tensor.detach()));
  }
}

TEST_CASE("tensors of a GPU are saved", "[cuda]") {
  const TempFolder folder;
  const auto values = torch::arange(24, torch::kBFloat16).view({2, 3, 4});
  const auto on_gpu = values.to(torch::kCUDA);
  save_safetensors(folder / "file", {{{"a", on_gpu}, {"b", on_gpu.permute({2, 0, 1})}}, {}}, false);
  const auto found = load_safetensors(folder / "file");
  CHECK(same(found.tensors.at(0).tensor, values));
  CHECK(same(found.tensors.at(1).tensor, values.permute({2, 0, 1})));
}
