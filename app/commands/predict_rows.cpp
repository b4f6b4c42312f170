#include <lockstep/app/commands/predict_rows.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <system_error>
#include <vector>

#include <lockstep/data/data_folder.h>
#include <lockstep/data/images/normalize.h>
#include <lockstep/data/resident_rows.h>
#include <lockstep/data/safetensors.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRowsTogether = 256;  // rows that are computed together
constexpr int64_t kMostAtOnce = 32 * kRowsTogether;
constexpr int64_t kBytesAtOnce = int64_t{256} << 20;

std::string shape_text(const NetworkFacts& facts) {
  return fmt::format("[n, {}]", fmt::join(facts.row_shape, ", "));
}

std::string types_text(const RowsOfNetwork& network) {
  return network.takes_bytes ? "uint8" : network.facts.bytes ? "uint8 or floats" : "floats";
}

std::string text_of(const NamedTensor& named) {
  return fmt::format("{} {} [{}]", printable(named.name), toString(named.tensor.scalar_type()),
                     fmt::join(named.tensor.sizes(), ", "));
}

bool fits(const NamedTensor& named, const RowsOfNetwork& network) {
  const auto& tensor = named.tensor;
  const bool bytes = tensor.scalar_type() == torch::kUInt8;
  const bool type = bytes ? network.takes_bytes || network.facts.bytes
                          : torch::isFloatingType(tensor.scalar_type()) && !network.takes_bytes;
  return type && tensor.dim() > 0 && tensor.sizes().slice(1).equals(network.facts.row_shape);
}

// A file's own names win: that of the network's input, then the test rows of a data file.
const NamedTensor& chosen(const std::vector<NamedTensor>& tensors, const std::string& path,
                          const RowsOfNetwork& network) {
  const auto& input = network.facts.input;
  std::vector<const NamedTensor*> fitting;
  for (const auto& named : tensors) {
    if (fits(named, network)) fitting.push_back(&named);
  }
  if (fitting.size() == 1) return *fitting.front();
  for (const auto& name : {input, "test." + input}) {
    const auto found = std::ranges::find(fitting, name, [](const auto* named) { return named->name; });
    if (found != fitting.end()) return **found;
  }
  std::vector<std::string> texts;
  for (const auto& named : tensors) texts.push_back(text_of(named));
  throw DataError(fmt::format("the network takes rows {} of {}, {} has {}: {}", shape_text(network.facts),
                              types_text(network), in_quotes(path),
                              fitting.empty() ? "none" : fmt::format("{} tensors of them", fitting.size()),
                              fmt::join(texts, ", ")),
                  fmt::format("save one tensor of them, or name it {}", input));
}

// "500 x 375 pixels"
std::string pixels_text(int64_t width, int64_t height) {
  return fmt::format("{} x {} pixels", width, height);
}

}  // namespace

torch::Tensor rows_in_file(const std::string& path, const RowsOfNetwork& network) {
  std::error_code ignored;
  const auto type = fs::status(path, ignored).type();
  if (type == fs::file_type::not_found) {
    throw DataError(fmt::format("cannot read {}: there is no such file", in_quotes(path)),
                    "name a safetensors file of rows");
  }
  if (!is_tensor_file(path)) {
    throw DataError(fmt::format("{} is {}, and rows are read from safetensors files", in_quotes(path),
                                type == fs::file_type::directory ? "a folder" : "no .safetensors file"),
                    "save the rows as one tensor in a file that ends with .safetensors");
  }
  const auto file = load_safetensors(path);
  const auto& rows = chosen(file.tensors, path, network).tensor;
  if (rows.size(0) == 0) throw DataError(fmt::format("{} has no rows", in_quotes(path)), "name another file");
  return rows.scalar_type() == torch::kUInt8 ? rows : rows.to(torch::kFloat32);
}

DecodeOptions decoding_for(const RowsOfNetwork& network) {
  const auto& facts = network.facts;
  const auto& shape = facts.row_shape;
  if (shape.size() != 3 || (shape[0] != 1 && shape[0] != 3)) {
    throw DataError(
        fmt::format("the network takes rows {}, images have [channels, height, width] with 1 or 3 "
                    "channels",
                    shape_text(facts)),
        "save the rows as one tensor in a file that ends with .safetensors");
  }
  if (!facts.bytes) {
    throw DataError("the network was trained on floats, and nothing says how these were made of pixels",
                    "save them in the same way, as one tensor in a file that ends with .safetensors");
  }
  const auto size = network.image_size.value_or(facts.image_size);
  if (size > 0 && (shape[1] != size || shape[2] != size)) {
    throw UsageError(fmt::format("images of --image-size {} do not fit the network, which takes {}", size,
                                 pixels_text(shape[2], shape[1])),
                     shape[1] == shape[2] ? "leave --image-size out, or give the network's" : "leave it out");
  }
  return {.channels = static_cast<int>(shape[0]), .size = static_cast<int>(size)};
}

void check_size(const Pixels& image, const std::string& path, const NetworkFacts& facts) {
  const auto height = facts.row_shape[1], width = facts.row_shape[2];
  if (image.height == height && image.width == width) return;
  throw DataError(fmt::format("{} has {}, the network takes {}", in_quotes(path),
                              pixels_text(image.width, image.height), pixels_text(width, height)),
                  height == width ? fmt::format("--image-size {} resizes and crops images", height)
                                  : "resize the images");
}

torch::Tensor rows_of_images(std::span<const DecodedFile> images, const RowsOfNetwork& network) {
  const auto count =
      std::ranges::count_if(images, [](const DecodedFile& file) { return file.fault.empty(); });
  auto sizes = network.facts.row_shape;
  sizes.insert(sizes.begin(), count);
  auto rows = torch::empty(sizes, torch::kUInt8);
  auto* to = rows.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < images.size(); ++i) {
    if (!images[i].fault.empty()) continue;
    const auto& values = images[i].image.values;
    std::memcpy(to, values.data(), values.size());
    to += values.size();
  }
  return rows;
}

SourceFactory sources_of_rows(const torch::Tensor& rows, const RowsOfNetwork& network) {
  const auto& facts = network.facts;
  auto sources = resident_rows(Batch({Batch::Item{facts.input, rows}}));
  if (rows.scalar_type() != torch::kUInt8 || network.takes_bytes) return sources;
  return normalized(std::move(sources), {.mean = facts.mean, .deviation = facts.deviation}, facts.input);
}

int64_t rows_at_once(const NetworkFacts& facts) {
  const auto row =
      std::accumulate(facts.row_shape.begin(), facts.row_shape.end(), int64_t{1}, std::multiplies{});
  return std::clamp(kBytesAtOnce / std::max<int64_t>(row, 1) / kRowsTogether * kRowsTogether, kRowsTogether,
                    kMostAtOnce);
}

}  // namespace lockstep
