#include <lockstep/models/program/stored_tensors.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/json_value.h>
#include <lockstep/models/program/read_graph.h>
#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

int64_t number_of(const Size& size, const std::string& name) {
  if (size.number < 0)
    throw FormatError(fmt::format("has a tensor {} whose sizes are not fixed", in_quotes(name)));
  return size.number;
}

// Throws unless all elements lie in the record's bytes.
void check_extent(const StoredTensor& tensor, size_t bytes) {
  const auto& meta = tensor.meta;
  int64_t last = number_of(meta.storage_offset, tensor.name);
  bool empty = false, beyond = false;
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    const auto size = number_of(meta.sizes[i], tensor.name), stride = number_of(meta.strides[i], tensor.name);
    int64_t reach = 0;
    if (size == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(size - 1, stride, &reach) ||
               __builtin_add_overflow(last, reach, &last)) {
      beyond = true;
    }
  }
  const auto elements = bytes / element_bytes(meta.dtype);
  if (!empty && (beyond || static_cast<uint64_t>(last) >= elements)) {
    throw FormatError(fmt::format("has a tensor {} whose last element is number {}{} of {} in record {}",
                                  in_quotes(tensor.name), beyond ? "beyond " : "", last, elements,
                                  in_quotes(tensor.record)),
                      "copy or export it again");
  }
}

StoredTensor read_tensor(const std::string& name, const Json& entry, const std::string& folder) {
  const auto& file = entry.at("path_name").text();
  const auto* meta = entry.find("tensor_meta");
  if (entry.at("use_pickle").truth() || !meta) {
    throw FormatError(
        fmt::format("has {} as a Python object (a pickle), which lockstep never reads", in_quotes(name)),
        "make it a plain, dense torch.Tensor on the CPU and export again");
  }
  return {.name = name,
          .record = folder + file,
          .is_parameter = entry.at("is_param").truth(),
          .meta = read_tensor_meta(*meta)};
}

std::vector<StoredTensor> read_config(const Archive& archive, const std::string& folder,
                                      const std::string& config) {
  std::vector<StoredTensor> tensors;
  const auto json = parse_json(archive.text(folder + config));
  for (const auto& [name, entry] : json.at("config").object()) {
    require_few_modules(name, "has a tensor");
    try {
      tensors.push_back(read_tensor(name, entry, folder));
    } catch (const FormatError& error) {
      throw FormatError(fmt::format("{}, tensor {}", error.what(), in_quotes(name)), error.hint());
    }
    check_extent(tensors.back(), archive.record(tensors.back().record).bytes.size());
  }
  return tensors;
}

// True if two elements may have the same bytes. Strides that reach over all smaller dimensions keep them
// apart, and a transposed or sliced tensor has no others.
bool may_overlap(const TensorMeta& meta) {
  std::vector<std::pair<int64_t, int64_t>> dimensions;  // stride and size
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    if (meta.sizes[i].number == 0) return false;
    if (meta.sizes[i].number > 1) dimensions.emplace_back(meta.strides[i].number, meta.sizes[i].number);
  }
  std::ranges::sort(dimensions);
  int64_t last = 0;  // the element farthest from the first one; it lies in the record, so nothing overflows
  for (const auto& [stride, size] : dimensions) {
    if (stride <= last) return true;
    last += (size - 1) * stride;
  }
  return false;
}

// Training changes the elements of a weight: each must have its own bytes, and tied weights must be the same.
void check_trainable(const std::vector<StoredTensor>& weights) {
  std::map<std::string, const StoredTensor*> first;
  for (const auto& weight : weights) {
    if (may_overlap(weight.meta)) {
      throw FormatError(fmt::format("has a weight {} whose elements share bytes", in_quotes(weight.name)),
                        "make it contiguous() in Python and export again");
    }
    const auto [entry, added] = first.emplace(weight.record, &weight);
    if (added) continue;
    const auto& other = *entry->second;
    if (other.meta != weight.meta || other.is_parameter != weight.is_parameter) {
      throw FormatError(fmt::format("has weights {} and {} that share memory, but are not the same tensor",
                                    in_quotes(other.name), in_quotes(weight.name)),
                        "give each its own memory with .clone() in Python, or tie whole parameters");
    }
  }
}

}  // namespace

size_t element_bytes(ElementType type) {
  using enum ElementType;
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kInt16:
    case kFloat16:
    case kBfloat16:
      return 2;
    case kInt32:
    case kFloat32:
    case kComplex32:
      return 4;
    case kInt64:
    case kFloat64:
    case kComplex64:
      return 8;
    case kComplex128:
      return 16;
  }
  return 16;
}

std::vector<StoredTensor> read_weights(const Archive& archive, const std::string& graph) {
  auto weights = read_config(archive, "data/weights/", graph + "_weights_config.json");
  check_trainable(weights);
  return weights;
}

std::vector<StoredTensor> read_constants(const Archive& archive, const std::string& graph) {
  return read_config(archive, "data/constants/", graph + "_constants_config.json");
}

}  // namespace lockstep::program
