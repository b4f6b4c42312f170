#include <lockstep/app/commands/data_verify.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <lockstep/app/files/json_file.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/data/data_kind.h>
#include <lockstep/data/fashion_mnist.h>
#include <lockstep/data/idx_files.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

std::string describe(const std::vector<FileCheck>& checks) {
  size_t width = 0;
  for (const auto& check : checks) width = std::max(width, check.path.filename().string().size());
  auto out = fmt::format("{:{}}  {:64}  result\n", "file", width, "SHA-256 of the decompressed bytes");
  for (const auto& check : checks) {
    out += fmt::format("{:{}}  {}  {}\n", check.path.filename().string(), width, check.sha256,
                       check.matches() ? "OK" : "DIFFERS");
  }
  return out;
}

bool all_match(const std::vector<FileCheck>& checks) {
  return std::all_of(checks.begin(), checks.end(), [](const FileCheck& check) { return check.matches(); });
}

nlohmann::ordered_json to_json(const std::string& folder, const std::vector<FileCheck>& checks) {
  auto files = nlohmann::ordered_json::array();
  for (const auto& check : checks) {
    files.push_back({{"file", check.path.filename().string()},
                     {"sha256", check.sha256},
                     {"published_sha256", check.expected},
                     {"ok", check.matches()}});
  }
  return {{"folder", folder}, {"ok", all_match(checks)}, {"files", files}};
}

[[noreturn]] void fail(const std::vector<FileCheck>& checks) {
  std::string differing;
  int count = 0;
  for (const auto& check : checks) {
    if (check.matches()) continue;
    differing += fmt::format("{}{} has SHA-256 {}, expected {}", count++ > 0 ? "; " : "", check.path.string(),
                             check.sha256, check.expected);
  }
  throw DataError(fmt::format("{} of {} files {} not as published: {}", count, checks.size(),
                              count == 1 ? "is" : "are", differing),
                  "train on them anyway, or restore the published files (apt-get install --reinstall "
                  "dataset-fashion-mnist)");
}

// Throws UsageError for a folder of other data. What is wrong with IDX files, or with none of all, is said by
// verify_fashion_mnist().
void refuse_other_data(const std::string& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored) || holds_idx_files(folder)) return;
  std::string_view kind;
  try {
    kind = to_string(kind_of(folder));
  } catch (const DataError&) {
    return;
  }
  throw UsageError(
      fmt::format("{} holds {} data, and Fashion-MNIST's files are compared with published ones",
                  in_quotes(folder), kind),
      fmt::format("'lockstep data show {}' reads all of it, and names what cannot be read", folder));
}

// verify_fashion_mnist(), with the flag in its hints.
std::vector<FileCheck> verify(const std::string& folder) {
  try {
    return verify_fashion_mnist(folder);
  } catch (const DataError& error) {
    throw DataError(error.message_text(), error.hint_text() + "; --data DIR names another folder");
  }
}

}  // namespace

void setup_data(CLI::App& app) {
  auto* data = app.add_subcommand("data", "Look at a data set, or check its files");
  auto* verify = data->add_subcommand("verify", "Compare Fashion-MNIST's files with the published ones");
  auto options = std::make_shared<DataVerifyOptions>();
  verify
      ->add_option("--data", options->data,
                   "Folder with Fashion-MNIST's four files (default: LOCKSTEP_DATA, else Debian's folder)")
      ->type_name("DIR");
  verify->add_flag("--json", options->json, "Print the result as JSON");
  verify->callback([options] { run_data_verify(*options); });
}

void run_data_verify(const DataVerifyOptions& options) {
  const std::string folder = data_folder(options.data);
  if (is_known_data(folder)) {
    throw UsageError(fmt::format("{} data has no files to verify", folder), "name a folder: --data DIR");
  }
  if (is_tensor_file(folder)) {
    throw UsageError(
        fmt::format("there is nothing published to compare {} with", in_quotes(folder)),
        "name Fashion-MNIST's folder: --data DIR; 'lockstep train --dry-run --data FILE' checks a file");
  }
  refuse_other_data(folder);
  const auto checks = verify(folder);
  write_stdout(options.json ? json_line(to_json(folder, checks))
                            : fmt::format("# {}\n{}", folder, describe(checks)));
  if (!all_match(checks)) fail(checks);
  if (!options.json) {
    write_stdout(fmt::format("all {} files are Fashion-MNIST as published\n", checks.size()));
  }
}

}  // namespace lockstep
