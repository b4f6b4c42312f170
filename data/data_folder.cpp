#include <lockstep/data/data_folder.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <system_error>

#include <lockstep/data/fashion_mnist.h>
#include <lockstep/data/known_data.h>

namespace lockstep {

std::string data_folder(const std::optional<std::string>& given) {
  if (given) return *given;
  const char* variable = std::getenv("LOCKSTEP_DATA");
  return std::string(variable && *variable ? variable : kDebianFashionMnist);
}

bool is_known_data(std::string_view name) { return find_known_data(name) != nullptr; }

bool is_tensor_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return path.extension() == ".safetensors" && !std::filesystem::is_directory(path, ignored);
}

std::vector<std::string> known_data_names() {
  std::vector<std::string> names;
  for (const auto& known : known_data()) names.emplace_back(known.name);
  return names;
}

std::string known_data_words() { return fmt::format("'{}'", fmt::join(known_data_names(), "', '")); }

}  // namespace lockstep
