#include <lockstep/app/train/run_outputs.h>

#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/files/distinct_files.h>
#include <lockstep/app/files/weights_file.h>
#include <lockstep/app/train/progress/progress_display.h>
#include <lockstep/data/data_folder.h>

namespace lockstep {
namespace {

// Empty: the data are no file, or in a folder of files with names of their own.
std::optional<std::string> data_file(const TrainFlags& flags) {
  auto data = data_folder(flags.data.path);
  return is_tensor_file(data) ? std::optional(std::move(data)) : std::nullopt;
}

}  // namespace

void RunOutputs::open(TrainFlags& flags, const World& place) {
  const auto metrics_file = metrics_on_stdout(flags) ? std::nullopt : flags.metrics;
  const std::vector<FileFlag> files = {
      {"--metrics", metrics_file}, {"--trace", flags.trace}, {"--save", flags.save}};
  check_distinct_files(
      files, {{"--config", flags.config}, {"--program", flags.program}, {"--data", data_file(flags)}});
  if (flags.metrics) metrics.emplace(*flags.metrics, flags.overwrite);
  if (flags.trace) trace.emplace(*flags.trace, flags.overwrite);
  if (flags.save) check_can_save(*flags.save, flags.overwrite);
  kept.open(flags, place);
  if (const auto folder = kept.folder(flags)) check_outside_folder(files, *folder, "the run's folder");
}

}  // namespace lockstep
