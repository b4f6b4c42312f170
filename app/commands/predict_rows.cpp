#include <lockstep/app/commands/predict_rows.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include <lockstep/data/data_folder.h>
#include <lockstep/data/safetensors.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string shape_text(const NetworkFacts& facts) {
  return fmt::format("[n, {}]", fmt::join(facts.row_shape, ", "));
}

std::string text_of(const NamedTensor& named) {
  return fmt::format("{} {} [{}]", printable(named.name), toString(named.tensor.scalar_type()),
                     fmt::join(named.tensor.sizes(), ", "));
}

bool fits(const NamedTensor& named, const NetworkFacts& facts) {
  const auto& tensor = named.tensor;
  const bool type = torch::isFloatingType(tensor.scalar_type()) || tensor.scalar_type() == torch::kUInt8;
  return type && tensor.dim() > 0 && tensor.sizes().slice(1).equals(facts.row_shape);
}

// A file's own names win: that of the network's input, then the test rows of a data file.
const NamedTensor& chosen(const std::vector<NamedTensor>& tensors, const std::string& path,
                          const NetworkFacts& facts) {
  std::vector<const NamedTensor*> fitting;
  for (const auto& named : tensors) {
    if (fits(named, facts)) fitting.push_back(&named);
  }
  if (fitting.size() == 1) return *fitting.front();
  for (const auto& name : {facts.input, "test." + facts.input}) {
    const auto found = std::ranges::find(fitting, name, [](const auto* named) { return named->name; });
    if (found != fitting.end()) return **found;
  }
  std::vector<std::string> texts;
  for (const auto& named : tensors) texts.push_back(text_of(named));
  throw DataError(fmt::format("the network takes rows {} of uint8 or floats, {} has {}: {}",
                              shape_text(facts), in_quotes(path),
                              fitting.empty() ? "none" : fmt::format("{} tensors of them", fitting.size()),
                              fmt::join(texts, ", ")),
                  fmt::format("save one tensor of them, or name it {}", facts.input));
}

}  // namespace

torch::Tensor rows_in_file(const std::string& path, const NetworkFacts& facts, bool takes_bytes) {
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
  const auto& rows = chosen(file.tensors, path, facts).tensor;
  if (rows.size(0) == 0) throw DataError(fmt::format("{} has no rows", in_quotes(path)), "name another file");
  if (takes_bytes) return rows;
  const bool bytes = rows.scalar_type() == torch::kUInt8;
  return bytes ? rows.to(torch::kFloat32).div(255) : rows.to(torch::kFloat32);
}

}  // namespace lockstep
