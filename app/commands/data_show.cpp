#include <lockstep/app/commands/data_show.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include <lockstep/app/files/json.h>
#include <lockstep/app/files/json_file.h>
#include <lockstep/app/plot/picture/draw.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/dataset.h>
#include <lockstep/app/train/plan/labels.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/atomic_file.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr int64_t kReadAtOnce = 256;  // rows
constexpr int kOfEachClass = 10;      // images in a sheet
constexpr int kMostSheetRows = 100;   // classes in a sheet
constexpr int kGap = 2;               // pixels between images

struct ClassRows {
  std::string name;
  int64_t train = 0, test = 0;
};

struct Shown {
  LoadedData data;
  std::vector<ClassRows> classes = {};            // empty: there are none
  std::vector<double> mean = {}, deviation = {};  // per channel, of pixels / 255; empty: no images of bytes
};

// Bytes, or bytes that their source divides by 255.
bool is_image(const TrainingData& data) {
  const auto& first = data.spec.front();
  return first.row_shape.size() == 3 && (first.dtype == torch::kUInt8 || data.row_noun == "image");
}

torch::Tensor as_bytes(const torch::Tensor& images) {
  return images.scalar_type() == torch::kUInt8 ? images : images.mul(255).round().to(torch::kUInt8);
}

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

// The sums are exact integers, whose order does not matter.
void measure(const TrainingData& data, Shown& shown) {
  const auto source = data.train.sources(torch::kCPU);
  Batch into(std::make_shared<const BatchSpec>(source->spec()));
  const auto channels = data.spec.front().row_shape.at(0);
  auto sum = torch::zeros({channels}, torch::kInt64), squares = sum.clone();
  int64_t pixels = 0;
  for (int64_t begin = 0; begin < data.train.rows; begin += kReadAtOnce) {
    source->gather(torch::arange(begin, std::min(begin + kReadAtOnce, data.train.rows)), 0, into);
    const auto numbers = as_bytes(into[0]).to(torch::kInt64);
    sum += numbers.sum({0, 2, 3});
    squares += numbers.square().sum({0, 2, 3});
    pixels += numbers.numel() / channels;
  }
  for (int64_t c = 0; c < channels; ++c) {
    const auto n = static_cast<double>(pixels);
    const double mean = static_cast<double>(sum[c].item<int64_t>()) / n;
    const double mean_square = static_cast<double>(squares[c].item<int64_t>()) / n;
    shown.mean.push_back(mean / 255);
    shown.deviation.push_back(std::sqrt(std::max(0., mean_square - mean * mean)) / 255);
  }
}

Shown look_at(const DataShowOptions& options) {
  Shown shown{.data = load_data({.path = options.data}, /*seed=*/0)};
  const auto& set = shown.data.set;
  shown.classes = count_classes(set);
  if (is_image(set)) measure(set, shown);
  return shown;
}

// The first images of each class, a row of the sheet each.
plot::Raster sheet_of(const TrainingData& data) {
  const auto& shape = data.spec.front().row_shape;
  if (!is_image(data) || !data.classes || (shape[0] != 1 && shape[0] != 3)) {
    throw UsageError(
        fmt::format("a sheet shows images of bytes with one or three channels and a class, {} has "
                    "{}",
                    data.name, to_string(data.spec.front())),
        "leave --sheet out");
  }
  const auto height = static_cast<int>(shape[1]), width = static_cast<int>(shape[2]);
  const auto rows = static_cast<int>(std::min<int64_t>(*data.classes, kMostSheetRows));
  plot::Raster sheet{.width = kOfEachClass * (width + kGap) + kGap, .height = rows * (height + kGap) + kGap};
  sheet.rgb.assign(static_cast<size_t>(sheet.width) * static_cast<size_t>(sheet.height) * 3, 255);
  const auto source = data.train.sources(torch::kCPU);
  Batch into(std::make_shared<const BatchSpec>(source->spec()));
  std::vector<int> shown(static_cast<size_t>(rows));
  const auto labels = class_labels(data.train);
  for (size_t row = 0; row < labels.size(); ++row) {
    const auto label = labels[row];
    if (label < 0 || label >= rows || shown[static_cast<size_t>(label)] == kOfEachClass) continue;
    const int column = shown[static_cast<size_t>(label)]++;
    source->gather(torch::tensor({static_cast<int64_t>(row)}), 0, into);
    const auto pixels = as_bytes(into[0])[0].expand({3, height, width}).permute({1, 2, 0}).contiguous();
    const auto* from = pixels.data_ptr<uint8_t>();
    for (int y = 0; y < height; ++y, from += 3 * width) {
      const auto at = (static_cast<int>(label) * (height + kGap) + kGap + y) * sheet.width +
                      column * (width + kGap) + kGap;
      std::copy(from, from + 3 * width, sheet.rgb.begin() + 3 * static_cast<std::ptrdiff_t>(at));
    }
  }
  return sheet;
}

std::string numbers_text(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += fmt::format("{}{:.4f}", text.empty() ? "" : ", ", value);
  return text;
}

std::string text_of(const Shown& shown) {
  const auto& set = shown.data.set;
  auto text = fmt::format("{} ({})\n", printable(set.name), printable(shown.data.origin));
  for (const auto& tensor : set.spec) text += fmt::format("  {:<11}{}\n", "tensor", to_string(tensor));
  text += fmt::format("  {:<11}{} training and {} test\n", set.row_noun + "s", with_commas(set.train.rows),
                      with_commas(set.test.rows));
  if (!shown.mean.empty()) {
    text +=
        fmt::format("  {:<11}{} (pixels / 255, of the training rows)\n", "mean", numbers_text(shown.mean));
    text += fmt::format("  {:<11}{}\n", "deviation", numbers_text(shown.deviation));
  }
  text += fmt::format("  {:<11}{}\n", "digest", shown.data.train_hash);
  if (shown.classes.empty()) return text + fmt::format("  {:<11}none: {}\n", "classes", set.no_classes);
  text += fmt::format("  {:>5}  {:<20} {:>10} {:>10}\n", "class", "name", "training", "test");
  for (size_t label = 0; label < shown.classes.size(); ++label) {
    const auto& of = shown.classes[label];
    text += fmt::format("  {:>5}  {:<20} {:>10} {:>10}\n", label, printable(of.name), with_commas(of.train),
                        with_commas(of.test));
  }
  return text;
}

Json json_of(const Shown& shown) {
  const auto& set = shown.data.set;
  auto classes = Json::array(), tensors = Json::array();
  for (const auto& of : shown.classes) {
    classes.push_back({{"name", of.name}, {"train_rows", of.train}, {"test_rows", of.test}});
  }
  for (const auto& tensor : set.spec) tensors.push_back(to_string(tensor));
  return {{"data", set.name},
          {"data_origin", shown.data.origin},
          {"tensors", tensors},
          {"train_rows", set.train.rows},
          {"test_rows", set.test.rows},
          {"mean", shown.mean},
          {"deviation", shown.deviation},
          {"train_data_hash", shown.data.train_hash},
          {"test_data_hash", shown.data.test_hash},
          {"classes", classes}};
}

// A class without training rows is never answered.
void warn_of_classes(const Shown& shown) {
  for (size_t label = 0; label < shown.classes.size(); ++label) {
    const auto& of = shown.classes[label];
    if (of.train > 0 || of.test == 0) continue;
    warn(fmt::format("class {} ({}) has {} test rows and no training row", label, in_quotes(of.name),
                     with_commas(of.test)));
  }
}

}  // namespace

void setup_data_show(CLI::App& data) {
  auto* show = data.add_subcommand("show", "Rows, classes, mean and deviation of a data set");
  auto options = std::make_shared<DataShowOptions>();
  show->add_option("PATH", options->data,
                   "As --data of train: a folder, a safetensors file or a data set without files (default: "
                   "LOCKSTEP_DATA, else Debian's folder)")
      ->default_str("");
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
    file->write(plot::png_of(sheet_of(shown.data.set)));
    file->commit();
  }
  warn_of_classes(shown);
  write_stdout(options.json ? json_line(json_of(shown)) : text_of(shown));
}

}  // namespace lockstep
