#include <lockstep/app/train/run_outputs.h>

#include <vector>

#include <lockstep/app/files/distinct_files.h>
#include <lockstep/app/files/weights_file.h>
#include <lockstep/app/train/progress/progress_display.h>

namespace lockstep {

void RunOutputs::open(TrainFlags& flags, const World& place) {
  const auto metrics_file = metrics_on_stdout(flags) ? std::nullopt : flags.metrics;
  const std::vector<FileFlag> files = {
      {"--metrics", metrics_file}, {"--trace", flags.trace}, {"--save", flags.save}};
  check_distinct_files(files, {{"--config", flags.config}});
  if (flags.metrics) metrics.emplace(*flags.metrics, flags.overwrite);
  if (flags.trace) trace.emplace(*flags.trace, flags.overwrite);
  if (flags.save) check_can_save(*flags.save, flags.overwrite);
  kept.open(flags, place);
  if (const auto folder = kept.folder(flags)) check_outside_folder(files, *folder, "the run's folder");
}

}  // namespace lockstep
