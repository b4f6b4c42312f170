#include <lockstep/tests/catch.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/data_folder.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/tensor_data.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/data/tensor_files.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using torch::tensor;

namespace {

const std::vector<torch::ScalarType> kDtypes = {
    torch::kBool,     torch::kUInt8,   torch::kInt8,    torch::kInt16,        torch::kUInt16,
    torch::kInt32,    torch::kUInt32,  torch::kInt64,   torch::kUInt64,       torch::kFloat16,
    torch::kBFloat16, torch::kFloat32, torch::kFloat64, torch::kComplexFloat, torch::kFloat8_e4m3fn};

std::string safetensors_name(torch::ScalarType dtype) {
  switch (dtype) {
    case torch::kBool:
      return "BOOL";
    case torch::kUInt8:
      return "U8";
    case torch::kInt8:
      return "I8";
    case torch::kInt16:
      return "I16";
    case torch::kUInt16:
      return "U16";
    case torch::kInt32:
      return "I32";
    case torch::kUInt32:
      return "U32";
    case torch::kInt64:
      return "I64";
    case torch::kUInt64:
      return "U64";
    case torch::kFloat16:
      return "F16";
    case torch::kBFloat16:
      return "BF16";
    case torch::kFloat64:
      return "F64";
    case torch::kComplexFloat:
      return "C64";
    case torch::kFloat8_e4m3fn:
      return "F8_E4M3";
    default:
      return "F32";
  }
}

void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  std::vector<TensorBytes> all;
  for (const auto& [name, tensor] : tensors) {
    const auto host = tensor.contiguous();
    all.push_back({name,
                   safetensors_name(host.scalar_type()),
                   host.sizes().vec(),
                   {static_cast<const char*>(host.const_data_ptr()), host.nbytes()}});
  }
  write_tensor_file(path, all);
}

torch::Tensor ones(at::IntArrayRef sizes, torch::ScalarType dtype = torch::kFloat32) {
  return torch::ones(sizes, torch::kFloat32).to(dtype);
}

// Four tensors of which nothing is wrong.
std::vector<NamedTensor> small_tensors() {
  return {{"train.X", torch::arange(12.F).view({4, 3})},
          {"train.y", tensor({0, 2, 1, 2}, torch::kInt64)},
          {"test.X", torch::arange(6.F).view({2, 3})},
          {"test.y", tensor({1, 0}, torch::kInt64)}};
}

// The small set, in which one tensor is another.
std::vector<NamedTensor> with(const std::string& name, const torch::Tensor& other) {
  auto tensors = small_tensors();
  for (auto& each : tensors) {
    if (each.name == name) each.tensor = other;
  }
  return tensors;
}

std::vector<NamedTensor> with_more(std::vector<NamedTensor> more) {
  auto tensors = small_tensors();
  tensors.insert(tensors.end(), more.begin(), more.end());
  return tensors;
}

std::vector<NamedTensor> without(const std::vector<std::string>& names) {
  auto tensors = small_tensors();
  std::erase_if(tensors, [&](const auto& each) {
    return std::find(names.begin(), names.end(), each.name) != names.end();
  });
  return tensors;
}

Batch gathered(const DataRows& rows, const std::vector<int64_t>& numbers) {
  const auto source = rows.sources(torch::kCPU);
  Batch batch(std::make_shared<const BatchSpec>(source->spec()));
  source->gather(tensor(numbers, torch::kInt64), /*epoch=*/0, batch);
  return batch;
}

TrainingData loaded(const std::filesystem::path& path, const std::vector<std::string>& targets = {}) {
  return as_training_data(load_tensor_data(path, targets));
}

std::string train_hash(const TrainingData& data) { return data.train.hash_of_first(data.train.rows); }

}  // namespace

TEST_CASE(
    "a file's tensors are inputs and a target: their rows have the dtype, shape and values of the file") {
  const TempFolder folder;
  for (const auto dtype : kDtypes) {
    INFO(dtype);
    const auto X = tensor({0, 1, 1, 0, 0, 1, 1, 1}, torch::kFloat32).to(dtype).view({4, 1, 2});
    const auto y = tensor({1, 0, 1, 1}, torch::kFloat32).to(dtype);
    write_tensors(
        folder / "set.safetensors",
        {{"train.X", X}, {"train.y", y}, {"test.X", X.narrow(0, 0, 2)}, {"test.y", y.narrow(0, 0, 2)}});
    const auto data = loaded(folder / "set.safetensors");
    CHECK(data.name == "set");
    CHECK(data.train.rows == 4);
    CHECK(data.test.rows == 2);
    CHECK((data.spec == BatchSpec{{.name = "X", .dtype = dtype, .row_shape = {1, 2}},
                                  {.name = "y", .dtype = dtype, .role = Role::kTarget}}));
    const auto batch = gathered(data.train, {3, 0, 3});
    CHECK((batch.spec() == data.spec));
    const auto expected = tensor({1, 1, 0, 1, 1, 1}, torch::kFloat32).to(dtype).view({3, 1, 2});
    REQUIRE(batch["X"].scalar_type() == dtype);
    CHECK(batch["X"].to(torch::kComplexFloat).equal(expected.to(torch::kComplexFloat)));
    CHECK(batch["y"].to(torch::kComplexFloat).equal(tensor({1, 1, 1}).to(torch::kComplexFloat)));
  }
}

TEST_CASE("inputs and targets are sorted by name, and the targets are those that are named, else y") {
  const TempFolder folder;
  const auto path = folder / "set.safetensors";
  const auto rows = ones({2, 5}), labels = ones({2}, torch::kInt64);
  write_tensors(path, {{"train.y", labels},
                       {"test.price", rows},
                       {"train.mask", rows},
                       {"train.ids.first", labels},
                       {"train.price", rows},
                       {"test.y", labels},
                       {"test.ids.first", labels},
                       {"test.mask", rows}});
  const auto names = [&](const std::vector<std::string>& targets) {
    std::string text;
    for (const auto& each : loaded(path, targets).spec) {
      text += (each.role == Role::kTarget ? " >" : " ") + each.name;
    }
    return text;
  };
  CHECK(names({}) == " ids.first mask price >y");
  CHECK(names({"price"}) == " ids.first mask y >price");
  CHECK(names({"y", "mask"}) == " ids.first price >mask >y");
  CHECK(refusal_of<DataError>([&] { names({"prize"}); }) ==
        path.string() +
            " has no target 'train.prize'; it has train.ids.first, train.mask, train.price, train.y");
  CHECK(refusal_of<DataError>([&] {
          names({"y", "mask", "price", "ids.first"});
        }) == path.string() + " has no input: train.ids.first, train.mask, train.price, train.y is a target");
}

TEST_CASE("each file that is no data set is refused with its path and what was found") {
  const TempFolder folder;
  const auto path = folder / "set.safetensors";
  struct Row {
    std::vector<NamedTensor> tensors;
    std::string words;
  };
  const std::vector<Row> table = {
      {{}, "has no tensors"},
      {without({"train.X", "train.y"}), "has test.X, test.y, and no tensor train.NAME to train on"},
      {without({"test.X", "test.y"}), "has train.X, train.y, and no tensor test.NAME to evaluate on"},
      {without({"test.y"}), "has train.y, and no tensor test.y"},
      {without({"train.X"}), "has test.X, and no tensor train.X"},
      {with_more({{"conv1.weight", ones({4})}}),
       "has a tensor 'conv1.weight', which is neither train.NAME nor test.NAME"},
      {with_more({{"labels", ones({4})}}), "has a tensor 'labels', which is neither"},
      {with_more({{"train.", ones({4})}}), "has a tensor 'train.', which is neither"},
      {with_more({{"train", ones({4})}}), "has a tensor 'train', which is neither"},
      {with_more({{"training.X", ones({4})}}), "has a tensor 'training.X', which is neither"},
      {with_more({{"train.a\\u001b[2J", ones({4})}}), "has a tensor 'train.a?[2J', whose name"},
      {with("train.y", ones({3}, torch::kInt64)), "has 4 rows of train.X, but 3 of train.y"},
      {with("test.y", ones({3}, torch::kInt64)), "has 2 rows of test.X, but 3 of test.y"},
      {with("train.y", tensor(1)), "has one number as train.y, not rows"},
      {with("test.X", ones({0, 3})), "has test.X [0, 3], which has no rows"},
      {with("train.X", ones({4, 0})), "has train.X [4, 0], which has no numbers"},
      {with("test.y", ones({2}, torch::kInt32)), "has train.y Long [n], but test.y Int [n]"},
      {with("test.X", ones({2, 4})), "has train.X Float [n, 3], but test.X Float [n, 4]"},
      {with("test.X", ones({2, 3, 1})), "has train.X Float [n, 3], but test.X Float [n, 3, 1]"},
      {{{"train.y", ones({2})}, {"test.y", ones({2})}}, "has no input: train.y is a target"},
  };
  for (const auto& [tensors, words] : table) {
    INFO(words);
    write_tensors(path, tensors);
    CHECK_THAT(refusal_of<DataError>([&] { load_tensor_data(path); }),
               StartsWith(path.string() + " " + words));
    CHECK_THAT(refusal_of<DataError>([&] { check_tensor_data(path); }),
               StartsWith(path.string() + " " + words));
  }
}

TEST_CASE("a missing or damaged file is an error of the data") {
  const TempFolder folder;
  const auto path = folder / "set.safetensors";
  CHECK(refusal_of<DataError>([&] { load_tensor_data(path); }) ==
        path.string() + " cannot be read: No such file or directory");
  write_tensors(path, small_tensors());
  CHECK(check_tensor_data(path) == 4 * 3 * 4 + 4 * 8 + 2 * 3 * 4 + 2 * 8);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  CHECK_THAT(refusal_of<DataError>([&] { load_tensor_data(path); }), StartsWith(path.string() + " "));
  write_safetensors_bytes(path, R"({"train.X":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "1");
  CHECK_THAT(refusal_of<DataError>([&] { load_tensor_data(path); }), StartsWith(path.string() + " "));
  write_tensors(path, with_more({{"train.b", ones({4}, torch::kBool)}, {"test.b", ones({2}, torch::kBool)}}));
  CHECK(load_tensor_data(path).train.size() == 3);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  std::ofstream(path, std::ios::app | std::ios::binary) << '\2';
  CHECK_THAT(refusal_of<DataError>([&] { load_tensor_data(path); }), ContainsSubstring("dtype BOOL"));
}

TEST_CASE("the hash of rows depends on names, dtypes, shapes and values, and not on the order in the file") {
  const TempFolder folder;
  const auto path = folder / "set.safetensors";
  const auto hash = [&](const std::vector<NamedTensor>& tensors) {
    write_tensors(path, tensors);
    return train_hash(loaded(path));
  };
  auto backwards = small_tensors();
  std::reverse(backwards.begin(), backwards.end());
  const auto own = hash(small_tensors());
  CHECK(own.size() == 32);
  CHECK(hash(backwards) == own);
  CHECK(hash(with("test.X", ones({2, 3}))) == own);  // other test rows
  CHECK(hash(with("train.X", torch::arange(12.F).view({4, 3}) + 1)) != own);
  CHECK(hash(with("train.y", tensor({0, 1, 1, 2}, torch::kInt64))) != own);
  auto other_shape = with("train.X", torch::arange(12.F).view({4, 3, 1}));
  other_shape[2].tensor = ones({2, 3, 1});
  CHECK(hash(other_shape) != own);
  auto other_dtype = with("train.X", torch::arange(12.F).view({4, 3}).view(torch::kInt32));
  other_dtype[2].tensor = ones({2, 3}, torch::kInt32);
  CHECK(hash(other_dtype) != own);  // the same bytes
  auto other_name = small_tensors();
  other_name[0].name = "train.x";
  other_name[2].name = "test.x";
  CHECK(hash(other_name) != own);
}

TEST_CASE("the hash of the first rows is that of a file with these rows alone, whatever the roles") {
  const TempFolder folder;
  write_tensors(folder / "whole.safetensors", small_tensors());
  auto first = small_tensors();
  for (auto& each : first) each.tensor = each.tensor.narrow(0, 0, 1);
  write_tensors(folder / "first.safetensors", first);
  const auto whole = loaded(folder / "whole.safetensors");
  CHECK(whole.train.hash_of_first(1) == train_hash(loaded(folder / "first.safetensors")));
  CHECK(whole.train.hash_of_first(2) != whole.train.hash_of_first(1));
  CHECK(train_hash(loaded(folder / "whole.safetensors", {"X"})) == train_hash(whole));
}

TEST_CASE("classes reach to the largest label of both sets, or the data say why there are none") {
  const TempFolder folder;
  const auto path = folder / "set.safetensors";
  const auto unsigned_labels = [](auto dtype) { return tensor({0, 2, 1, 2}, torch::kInt64).to(dtype); };
  struct Row {
    std::vector<NamedTensor> tensors;
    int64_t classes;
    std::string why_none = {};
  };
  const auto with_labels = [&](const torch::Tensor& train, const torch::Tensor& test) {
    auto tensors = with("train.y", train);
    tensors[3].tensor = test;
    return tensors;
  };
  std::vector<Row> table = {
      {small_tensors(), 3},
      {with("test.y", tensor({0, 6}, torch::kInt64)), 7},
      {with("train.y", tensor({0, -1, 1, 2}, torch::kInt64)), 0, "train.y has -1 in row 1"},
      {with("test.y", tensor({0, -100}, torch::kInt64)), 0, "test.y has -100 in row 1"},
      {with_labels(ones({4}), ones({2})), 0, "its target y Float [n]"},
      {with_labels(ones({4}, torch::kBool), ones({2}, torch::kBool)), 0, "its target y Bool [n]"},
      {with_labels(ones({4, 1}, torch::kInt64), ones({2, 1}, torch::kInt64)), 0, "its target y Long [n, 1]"},
      {with_labels(torch::full({4}, INT64_MAX, torch::kInt64), ones({2}, torch::kInt64)), 0,
       "train.y has 9223372036854775807 in row 0"},
      {with_labels(torch::full({4}, -1, torch::kInt64).view(torch::kUInt64), ones({2}, torch::kUInt64)), 0,
       "train.y has 18446744073709551615 in row 0"},
      {without({"train.y", "test.y"}), 0, "it has no target"}};
  for (const auto dtype : {torch::kUInt8, torch::kInt8, torch::kUInt16, torch::kInt16, torch::kInt32,
                           torch::kUInt32, torch::kUInt64}) {
    table.push_back({with_labels(unsigned_labels(dtype), tensor({1, 0}, torch::kInt64).to(dtype)), 3});
  }
  for (const auto& [tensors, classes, why_none] : table) {
    INFO(classes << " " << why_none);
    write_tensors(path, tensors);
    const auto data = loaded(path);
    CHECK(data.no_classes == why_none);
    if (classes > 0) {
      CHECK(class_count(data) == classes);
    } else {
      CHECK(refusal_of<DataError>([&] { class_count(data); }) == "set has no classes: " + why_none);
    }
  }
  write_tensors(path, with_more({{"train.z", ones({4})}, {"test.z", ones({2})}}));
  CHECK(loaded(path, {"z", "y"}).no_classes == "it has 2 targets");
}

TEST_CASE("the first rows of a file keep its classes, and messages show its tensors") {
  const TempFolder folder;
  write_tensors(folder / "set.safetensors", small_tensors());
  const auto first = as_training_data(first_rows(load_tensor_data(folder / "set.safetensors"), 1, 1));
  CHECK(first.train.rows == 1);
  CHECK(class_count(first) == 3);
  CHECK(first.content == "X Float [n, 3], target y Long [n], 3 classes");
  CHECK(first.row_noun == "row");
}

TEST_CASE("what is wrong in rows behind the first ones is not looked at") {
  const TempFolder folder;
  const auto path = folder / "set.safetensors";
  auto X = ones({4, 3});
  X[3][1] = std::numeric_limits<float>::quiet_NaN();
  write_tensors(path, {{"train.X", X},
                       {"train.y", tensor({0, 2, -1, 1}, torch::kInt64)},
                       {"test.X", ones({2, 3})},
                       {"test.y", tensor({0, 7}, torch::kInt64)}});
  const auto data = load_tensor_data(path);
  const auto all = as_training_data(data), first = as_training_data(first_rows(data, 2, 1));
  CHECK(all.train_faults.not_finite == "train.X has nan in row 3");
  CHECK(all.test_faults.not_finite.empty());
  CHECK(all.train_faults.outside(5, {}) == "train.y has -1 in row 2");
  CHECK(all.train_faults.outside(5, -1).empty());
  CHECK(all.test_faults.outside(5, {}) == "test.y has 7 in row 1");
  CHECK(all.no_classes == "train.y has -1 in row 2");
  CHECK(first.train_faults.not_finite.empty());
  CHECK(first.train_faults.outside(5, {}).empty());
  CHECK(first.test_faults.outside(5, {}).empty());
  CHECK(class_count(first) == 3);
}

TEST_CASE("pixels of bytes become floats, with the bits that resident images have; other types stay") {
  const TempFolder folder;
  const auto pixels = torch::arange(256).to(torch::kUInt8).view({4, 1, 8, 8});
  const auto labels = tensor({3, 1, 2, 0}, torch::kUInt8);
  write_tensors(folder / "set.safetensors",
                {{"train.X", pixels}, {"train.y", labels}, {"test.X", pixels}, {"test.y", labels}});
  const auto bytes = loaded(folder / "set.safetensors");
  const auto floats = with_pixels_as_floats(bytes, "X");
  CHECK((floats.spec[0] == TensorSpec{.name = "X", .row_shape = {1, 8, 8}}));
  CHECK((floats.spec[1] == bytes.spec[1]));
  CHECK(train_hash(floats) == train_hash(bytes));
  const auto source = resident_sources({pixels, labels})(torch::kCPU);
  Batch images(std::make_shared<const BatchSpec>(source->spec()));
  source->gather(tensor({2, 0}, torch::kInt64), 0, images);
  for (const auto* rows : {&floats.train, &floats.test}) {
    CHECK((rows->sources(torch::kCPU)->spec() == floats.spec));
    const auto batch = gathered(*rows, {2, 0});
    CHECK(batch["X"].equal(images["images"]));
    CHECK(batch["X"][0][0][0][5].item<float>() == 133.F / 255);
    CHECK(batch["y"].equal(tensor({2, 3}, torch::kUInt8)));
  }
  CHECK((with_pixels_as_floats(floats, "X").spec == floats.spec));
  CHECK(with_pixels_as_floats(bytes, "X").train.rows == 4);
  CHECK_THAT(refusal_of([&] { with_pixels_as_floats(bytes, "image"); }), ContainsSubstring("image"));
}

TEST_CASE("a source of pixels writes into the tensors of the batch before") {
  const TempFolder folder;
  auto tensors = small_tensors();
  for (auto* each : {&tensors[0], &tensors[2]}) each->tensor = each->tensor.to(torch::kUInt8);
  write_tensors(folder / "set.safetensors", tensors);
  const auto data = with_pixels_as_floats(loaded(folder / "set.safetensors"), "X");
  const auto source = data.train.sources(torch::kCPU);
  Batch batch(std::make_shared<const BatchSpec>(source->spec()));
  source->gather(tensor({0, 1}, torch::kInt64), 0, batch);
  const auto X = batch[0], y = batch[1];
  source->gather(tensor({3, 2}, torch::kInt64), 0, batch);
  CHECK(batch[0].is_same(X));
  CHECK(batch[1].is_same(y));
  CHECK(X[0][0].item<float>() == 9.F / 255);
  source->gather(torch::empty({0}, torch::kInt64), 0, batch);
  CHECK(batch[0].sizes() == std::vector<int64_t>{0, 3});
}
