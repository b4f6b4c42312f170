#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include <lockstep/models/program/module_tree.h>
#include <lockstep/models/program/parts.h>
#include <lockstep/support/load_tensors.h>

namespace lockstep {
namespace {

using program::NewRecord;
using program::StoredTensor;

// The tensors that state_dict() would give, without memory: names, shapes and dtypes; tied weights are one
// tensor.
std::vector<NamedTensor> expected_weights(const Program::Parts& parts) {
  std::map<std::string, torch::Tensor> by_record;
  std::vector<NamedTensor> all;
  for (const auto& weight : parts.file.weights) {
    auto& tensor = by_record[weight.record];
    if (!tensor.defined()) {
      tensor = at::empty(program::numbers_of(weight.meta.sizes),
                         torch::TensorOptions(program::scalar_type(weight.meta.dtype)).device(torch::kMeta));
    }
    all.push_back({weight.name, tensor});
  }
  return all;
}

// The record's bytes with these numbers in the tensor's place.
std::vector<std::byte> new_bytes(std::span<const std::byte> old, const StoredTensor& stored,
                                 const torch::Tensor& values) {
  std::vector<std::byte> bytes(old.begin(), old.end());
  const auto type = program::scalar_type(stored.meta.dtype);
  const auto count = static_cast<int64_t>(bytes.size() / c10::elementSize(type));
  const torch::NoGradGuard no_grad;
  const auto storage = at::from_blob(bytes.data(), {count}, torch::TensorOptions(type));
  storage
      .as_strided(program::numbers_of(stored.meta.sizes), program::numbers_of(stored.meta.strides),
                  stored.meta.storage_offset.number)
      .copy_(values.detach());
  return bytes;
}

}  // namespace

void save_program(const Program& program, std::span<const NamedTensor> weights,
                  const std::filesystem::path& path) {
  const auto& file = program.parts().file;
  require_same_tensors(
      expected_weights(program.parts()), weights,
      {.name = "program", .parts = "parameters and buffers", .hint = "these are weights of another model"});
  std::map<std::string, torch::Tensor> given;  // by the file's record
  std::map<std::string, const StoredTensor*> by_name, changed;
  for (const auto& weight : file.weights) by_name.emplace(weight.name, &weight);
  for (const auto& [name, tensor] : weights) given.emplace(by_name.at(name)->record, tensor);
  for (const auto& weight : file.weights) changed.emplace(weight.record, &weight);
  for (const auto& [record, name] : file.weight_copies) changed.emplace(record, by_name.at(name));

  std::vector<std::byte> bytes;  // of the record that is being written
  std::vector<NewRecord> records;
  for (const auto& record : file.archive->records()) {
    const auto stored = changed.find(record.name);
    const auto* weight = stored == changed.end() ? nullptr : stored->second;
    records.push_back(
        {.name = record.name, .size = record.bytes.size(), .bytes = [&, weight, name = record.name] {
           const auto old = file.archive->bytes(name);
           if (!weight) return old;
           bytes = new_bytes(old, *weight, given.at(weight->record));
           return std::span<const std::byte>(bytes);
         }});
  }
  write_archive(path, file.archive->root(), records);
}

}  // namespace lockstep
