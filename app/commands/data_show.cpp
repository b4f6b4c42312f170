#include <lockstep/app/commands/data_show.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/app/commands/contact_sheet.h>
#include <lockstep/app/commands/data_show_folder.h>
#include <lockstep/app/commands/data_summary.h>
#include <lockstep/app/files/json_file.h>
#include <lockstep/app/plot/picture/draw.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/dataset.h>
#include <lockstep/app/train/plan/labels.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/data/data_kind.h>
#include <lockstep/data/images/normalize.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/atomic_file.h>

namespace lockstep {
namespace {

std::vector<ClassRows> count_classes(const TrainingData& data) {
  std::vector<ClassRows> classes;
  if (!data.classes) return classes;
  for (const auto& name : facts_of(data).value_or(NetworkFacts{}).classes) classes.push_back({name});
  for (const auto* rows : {&data.train, &data.test}) {
    for (const auto label : class_labels(*rows)) {
      if (label < 0 || label >= std::ssize(classes)) continue;
      auto& of = classes[static_cast<size_t>(label)];
      ++(rows == &data.train ? of.train : of.test);
    }
  }
  return classes;
}

DataSummary summary_of(const LoadedData& data) {
  const auto& set = data.set;
  DataSummary summary{.name = set.name,
                      .origin = data.origin,
                      .kind = data.kind,
                      .row_noun = set.row_noun,
                      .train_rows = set.train.rows,
                      .test_rows = set.test.rows,
                      .digest = data.digest,
                      .train_hash = data.train_hash,
                      .test_hash = data.test_hash,
                      .classes = count_classes(set),
                      .no_classes = set.no_classes,
                      .notices = data.notices};
  for (const auto& tensor : set.spec) summary.tensors.push_back(to_string(tensor));
  if (const auto input = image_input_of(set)) {
    const auto measured = measure(set.train, {.input = *input});
    summary.mean = measured.normalization.mean;
    summary.deviation = measured.deviation;
  }
  summary.notices.insert(summary.notices.end(), data.class_notices.begin(), data.class_notices.end());
  if (data.same_rows) {
    if (auto same = data.same_rows(); !same.empty()) summary.notices.push_back(std::move(same));
  }
  return summary;
}

plot::Raster sheet_of_rows(const TrainingData& data) {
  const auto& first = data.spec.front();
  const auto& shape = first.row_shape;
  if (image_input_of(data) != first.name || !data.classes || (shape[0] != 1 && shape[0] != 3)) {
    throw UsageError(
        fmt::format("a sheet shows images of bytes with one or three channels and a class, {} has {}",
                    data.name, to_string(first)),
        "leave --sheet out");
  }
  ContactSheet sheet(*data.classes, shape[1], shape[2]);
  const auto source = data.train.sources(torch::kCPU);
  Batch into(std::make_shared<const BatchSpec>(source->spec()));
  const auto labels = class_labels(data.train);
  for (size_t row = 0; row < labels.size() && !sheet.is_full(); ++row) {
    if (!sheet.wants(labels[row])) continue;
    source->gather(torch::tensor({static_cast<int64_t>(row)}), /*epoch=*/0, into);
    const auto pixels = into[0].contiguous();
    sheet.add(labels[row], {pixels.const_data_ptr<uint8_t>(), static_cast<size_t>(pixels.numel())});
  }
  return sheet.raster();
}

bool is_image_folder(const std::string& path) {
  std::error_code ignored;
  return !is_known_data(path) && std::filesystem::is_directory(path, ignored) &&
         kind_of(path) == DataKind::kImageFolder;
}

ShownFolder look_at(const DataShowOptions& options) {
  const auto path = data_folder(options.data.path);
  if (is_image_folder(path)) return look_at_folder(path, options.data, options.sheet.has_value());
  const auto data = load_data(options.data, /*seed=*/0);
  ShownFolder shown{.summary = summary_of(data)};
  if (options.sheet) shown.sheet = sheet_of_rows(data.set);
  return shown;
}

}  // namespace

void setup_data_show(CLI::App& data) {
  auto* show = data.add_subcommand("show", "Rows, classes, mean and deviation of a data set");
  auto options = std::make_shared<DataShowOptions>();
  show->add_option("PATH", options->data.path,
                   "As --data of train: a folder, a safetensors file or a data set without files (default: "
                   "LOCKSTEP_DATA, else Debian's folder)")
      ->default_str("");
  add_data_flags(*show, options->data);
  show->add_option("--sheet", options->sheet, "Also write the first images of each class as a PNG")
      ->type_name("FILE");
  show->add_flag("--overwrite", options->overwrite, "Replace existing output files");
  show->add_flag("--json", options->json, "Print the result as JSON");
  show->callback([options] {
    refuse_several_processes("data show");
    run_data_show(*options);
  });
}

void run_data_show(const DataShowOptions& options) {
  std::optional<AtomicFile> file;  // before the data are read
  if (options.sheet) file.emplace(*options.sheet, options.overwrite);
  const auto shown = look_at(options);
  if (file) {
    file->write(plot::png_of(*shown.sheet));
    file->commit();
  }
  for (const auto& fault : shown.summary.unreadable) warn(fault);
  for (const auto& notice : shown.summary.notices) warn(notice);
  write_stdout(options.json ? json_line(json_of(shown.summary)) : text_of(shown.summary));
}

}  // namespace lockstep
