#include <lockstep/app/train/plan/loaded_data.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include <lockstep/data/data_folder.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {

std::pair<int64_t, int64_t> used_rows(const DataFlags& flags, int64_t train_rows, int64_t test_rows,
                                      std::string_view noun) {
  const auto check = [&](std::optional<int64_t> limit, int64_t rows, const char* flag, const char* kind) {
    if (limit.value_or(0) <= rows) return;
    throw UsageError(fmt::format("--limit-{} {} is more than the {} {} {}s of {}", flag, *limit,
                                 with_commas(rows), kind, noun, data_folder(flags.path)),
                     "leave it out to use all of them");
  };
  check(flags.limit_train, train_rows, "train", "training");
  check(flags.limit_test, test_rows, "test", "test");
  return {flags.limit_train.value_or(train_rows), flags.limit_test.value_or(test_rows)};
}

int decoding_threads(const DataFlags& flags) {
  const auto cores = static_cast<int>(allowed_cores().size());
  constexpr int kMost = 8;
  return flags.workers.value_or(std::clamp(cores, 1, kMost));
}

std::string name_of_folder(const std::string& folder) {
  auto path = std::filesystem::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

std::string LoadedData::test_count() const {
  const auto rows = with_commas(set.test.rows);
  return test_limited() ? fmt::format("the first {} of {}", rows, with_commas(all_test_rows)) : rows;
}

int64_t default_data_memory(int64_t free_bytes, int processes_on_host) {
  if (free_bytes <= 0) return std::numeric_limits<int64_t>::max();
  return free_bytes / 2 / std::max(1, processes_on_host);
}

}  // namespace lockstep
