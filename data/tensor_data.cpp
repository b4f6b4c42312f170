#include <lockstep/data/tensor_data.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/data/data_folder.h>
#include <lockstep/data/resident_rows.h>
#include <lockstep/data/row_values.h>
#include <lockstep/data/safetensors.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/sha256.h>
#include <lockstep/support/files/xxhash64.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr auto kFormHint =
    "a data file has tensors train.NAME and test.NAME, such as train.X, train.y, test.X and test.y, and the "
    "first dimension of each counts rows";

constexpr const char* kTrainPart = "train";
constexpr const char* kTestPart = "test";

// Rows for training or for testing: their tensors by name.
struct Part {
  std::string prefix;
  std::map<std::string, torch::Tensor> tensors = {};

  std::string full(const std::string& name) const { return prefix + "." + name; }
  int64_t rows() const { return tensors.begin()->second.size(0); }
};

using Parts = std::array<Part, 2>;

[[noreturn]] void refuse(const fs::path& path, const std::string& what, const std::string& hint = kFormHint) {
  throw DataError(fmt::format("{} {}", path.string(), what), hint);
}

// "train.X and train.y"
std::string names_of(const Part& part) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : part.tensors) names.push_back(part.full(name));
  return fmt::format("{}", fmt::join(names, ", "));
}

TensorSpec spec_of_rows(const std::string& name, const torch::Tensor& tensor, Role role = Role::kInput) {
  return {
      .name = name, .dtype = tensor.scalar_type(), .row_shape = tensor.sizes().slice(1).vec(), .role = role};
}

void sort_in(const fs::path& path, NamedTensor tensor, Parts& parts) {
  const std::string_view name = tensor.name;
  if (printable(name) != name) {
    refuse(path, fmt::format("has a tensor {}, whose name has characters that nobody sees", in_quotes(name)));
  }
  const auto dot = name.find('.');
  for (auto& part : parts) {
    if (dot == std::string_view::npos || name.substr(0, dot) != part.prefix || dot + 1 == name.size())
      continue;
    part.tensors.emplace(name.substr(dot + 1), std::move(tensor.tensor));
    return;
  }
  refuse(path, fmt::format("has a tensor {}, which is neither train.NAME nor test.NAME", in_quotes(name)));
}

void check_both_there(const fs::path& path, const Parts& parts) {
  const auto& [train, test] = parts;
  if (train.tensors.empty() && test.tensors.empty()) refuse(path, "has no tensors");
  if (train.tensors.empty()) {
    refuse(path, fmt::format("has {}, and no tensor train.NAME to train on", names_of(test)));
  }
  if (test.tensors.empty()) {
    refuse(path, fmt::format("has {}, and no tensor test.NAME to evaluate on", names_of(train)),
           "keep some rows for the evaluation after each epoch: save them as test.NAME");
  }
}

// All tensors have rows, equally many, and rows have numbers.
void check_rows(const fs::path& path, const Part& part) {
  for (const auto& [name, tensor] : part.tensors) {
    if (tensor.dim() == 0) refuse(path, fmt::format("has one number as {}, not rows", part.full(name)));
    if (tensor.numel() == 0) {
      refuse(path, fmt::format("has {} [{}], which has no {}", part.full(name),
                               fmt::join(tensor.sizes(), ", "), tensor.size(0) == 0 ? "rows" : "numbers"));
    }
  }
  for (const auto& [name, tensor] : part.tensors) {
    if (tensor.size(0) == part.rows()) continue;
    refuse(path, fmt::format("has {} rows of {}, but {} of {}", part.rows(),
                             part.full(part.tensors.begin()->first), tensor.size(0), part.full(name)));
  }
}

// Both can be given to one model: the same names, dtypes and sizes of rows.
void check_alike(const fs::path& path, const Part& part, const Part& other) {
  for (const auto& [name, tensor] : part.tensors) {
    const auto found = other.tensors.find(name);
    if (found == other.tensors.end()) {
      refuse(path, fmt::format("has {}, and no tensor {}", part.full(name), other.full(name)));
    }
    const auto own = spec_of_rows(part.full(name), tensor),
               others = spec_of_rows(other.full(name), found->second);
    if (own.dtype == others.dtype && own.row_shape == others.row_shape) continue;
    refuse(path, fmt::format("has {}, but {}", to_string(own), to_string(others)));
  }
}

bool is_target(const std::string& name, std::span<const std::string> targets) {
  return targets.empty() ? name == "y" : std::ranges::find(targets, name) != targets.end();
}

void check_roles(const fs::path& path, const Part& train, std::span<const std::string> targets) {
  for (const auto& name : targets) {
    if (train.tensors.contains(name)) continue;
    refuse(path, fmt::format("has no target {}; it has {}", in_quotes(train.full(name)), names_of(train)));
  }
  const bool inputs = std::ranges::any_of(
      train.tensors, [&](const auto& tensor) { return !is_target(tensor.first, targets); });
  if (!inputs) refuse(path, fmt::format("has no input: {} is a target", names_of(train)));
}

// Sorts the tensors of a file, whose values may be missing, and checks them.
Parts parts_of(const fs::path& path, TensorFile file, std::span<const std::string> targets) {
  Parts parts = {{{.prefix = kTrainPart}, {.prefix = kTestPart}}};
  for (auto& tensor : file.tensors) sort_in(path, std::move(tensor), parts);
  check_both_there(path, parts);
  for (const auto& part : parts) check_rows(path, part);
  check_alike(path, parts[0], parts[1]);
  check_alike(path, parts[1], parts[0]);
  check_roles(path, parts[0], targets);
  return parts;
}

// Returns the bytes of the values.
int64_t check_shapes(const fs::path& path, TensorFile shapes, std::span<const std::string> targets) {
  int64_t bytes = 0;
  for (const auto& tensor : shapes.tensors) bytes += static_cast<int64_t>(tensor.tensor.nbytes());
  parts_of(path, std::move(shapes), targets);
  return bytes;
}

// Reads with one of the functions of safetensors.h. Its errors are those of data here.
template <class Read>
TensorFile read_as_data(const fs::path& path, const Read& read) {
  try {
    return read(path);
  } catch (const WeightsError& error) {
    throw DataError(error.message_text(), "save it again, or name another file");
  }
}

Batch batch_of(const Part& part, std::span<const std::string> targets) {
  BatchSpec spec;
  std::vector<torch::Tensor> tensors;
  for (const auto role : {Role::kInput, Role::kTarget}) {
    for (const auto& [name, tensor] : part.tensors) {
      if (is_target(name, targets) != (role == Role::kTarget)) continue;
      spec.push_back(spec_of_rows(name, tensor, role));
      tensors.push_back(tensor);
    }
  }
  Batch batch(std::make_shared<const BatchSpec>(std::move(spec)));
  for (size_t i = 0; i < tensors.size(); ++i) batch[i] = std::move(tensors[i]);
  return batch;
}

// Depends on names, dtypes, sizes and values, and not on roles.
std::string hash_of(const Batch& rows) {
  std::map<std::string, std::string> texts;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& spec = rows.spec()[i];
    const auto values = rows[i].contiguous();
    texts[spec.name] =
        fmt::format("{} [{}] {:016x}", torch::toString(spec.dtype), fmt::join(spec.row_shape, ","),
                    xxhash64({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()}));
  }
  Sha256 hash;
  for (const auto& [name, text] : texts) {
    const auto line = fmt::format("{} {}\n", name, text);
    hash.update(std::as_bytes(std::span(line)));
  }
  return hash.hex().substr(0, 32);
}

DataRows rows_of(const Batch& batch, bool has_classes) {
  DataRows rows{.rows = batch.rows(),
                .sources = resident_rows(batch),
                .hash_of_first = [batch](int64_t count) { return hash_of(batch.narrow(0, count)); }};
  if (!has_classes) return rows;
  rows.labels = [target = batch.target()] {
    const auto labels = target.to(torch::kInt64).contiguous();
    const auto* const first = labels.const_data_ptr<int64_t>();
    return std::vector<int64_t>(first, first + labels.numel());
  };
  return rows;
}

}  // namespace

int64_t check_tensor_data(const fs::path& path, std::span<const std::string> targets) {
  return check_shapes(path, read_as_data(path, read_safetensors_shapes), targets);
}

TensorData load_tensor_data(const fs::path& path, std::span<const std::string> targets,
                            const std::function<void(int64_t bytes)>& before_values) {
  const auto check = [&](const TensorFile& shapes) {
    const auto bytes = check_shapes(path, shapes, targets);
    if (before_values) before_values(bytes);
  };
  auto file = read_as_data(path, [&](const fs::path& from) { return load_safetensors(from, check); });
  const auto parts = parts_of(path, std::move(file), targets);
  TensorData data{.name = path.stem().string(),
                  .train = batch_of(parts[0], targets),
                  .test = batch_of(parts[1], targets)};
  auto classes = classes_of(data.train, data.test);
  data.classes = classes.count;
  data.no_classes = std::move(classes.why_none);
  return data;
}

TensorData first_rows(TensorData data, int64_t train, int64_t test) {
  data.train = data.train.narrow(0, train);
  data.test = data.test.narrow(0, test);
  if (data.classes) return data;
  auto classes = classes_of(data.train, data.test);
  data.classes = classes.count;
  data.no_classes = std::move(classes.why_none);
  return data;
}

TrainingData as_training_data(const TensorData& data) {
  std::vector<std::string> content;
  for (const auto& tensor : data.train.spec()) content.push_back(to_string(tensor));
  if (data.classes) {
    content.push_back(fmt::format("{} class{}", with_commas(*data.classes), *data.classes == 1 ? "" : "es"));
  }
  return {.name = data.name,
          .spec = data.train.spec(),
          .classes = data.classes,
          .no_classes = data.no_classes,
          .train_faults = faults_in(data.train, kTrainPart),
          .test_faults = faults_in(data.test, kTestPart),
          .content = fmt::format("{}", fmt::join(content, ", ")),
          .train = rows_of(data.train, data.classes.has_value()),
          .test = rows_of(data.test, data.classes.has_value())};
}

}  // namespace lockstep
