#include <lockstep/app/files/weights_name.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr std::string_view kProgramEnding = ".pt2";

// Endings of files that torch.load(), numpy, Keras and ONNX read.
constexpr std::array<std::string_view, 13> kOtherEndings = {".pt",     ".pth",  ".bin", ".ckpt", ".pkl",
                                                            ".pickle", ".tar",  ".zip", ".npy",  ".npz",
                                                            ".h5",     ".hdf5", ".onnx"};

// In small letters: ".pt".
std::string ending_of(const std::string& path) {
  const std::filesystem::path file(path);
  auto ending = file.extension().native();
  if (ending.empty() && file.filename().native().starts_with('.')) ending = file.filename().native();
  for (char& c : ending) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return ending;
}

}  // namespace

bool names_program(const std::string& path) { return ending_of(path) == kProgramEnding; }

void check_weights_name(const std::string& flag, const std::string& path, bool has_program) {
  const auto ending = ending_of(path);
  if (ending == kProgramEnding && !has_program) {
    throw UsageError(
        fmt::format("{} {} would hold an exported program, and this run has none", flag, in_quotes(path)),
        "name a .safetensors file; a .pt2 file is written by runs of --program FILE");
  }
  if (std::ranges::find(kOtherEndings, ending) == kOtherEndings.end()) return;
  throw UsageError(
      fmt::format("{} {} would hold safetensors, and {} names another format", flag, in_quotes(path), ending),
      has_program ? "name a .safetensors file, or a .pt2 file: the program with its weights"
                  : "name a .safetensors file, which Python reads as well");
}

}  // namespace lockstep
