#include <lockstep/app/commands/predict.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include <lockstep/app/cli/add_choice.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/commands/decoded_files.h>
#include <lockstep/app/commands/given_files.h>
#include <lockstep/app/commands/predict_network.h>
#include <lockstep/app/commands/predict_output.h>
#include <lockstep/app/commands/predict_rows.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/data/not_idx.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using Paths = std::span<const std::string>;

WeightsOptions weights_of(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return {.run = path};
  return {.weights = path};
}

// Makes predictions for files in turn, some thousand rows at a time.
class FilePredictions {
 public:
  FilePredictions(PredictNetwork& network, const PredictOptions& options, Json head)
      : network_(network),
        rows_{
            .facts = network.facts(), .takes_bytes = network.takes_bytes(), .image_size = options.image_size},
        output_(network.facts(), options.json, std::move(head)) {}

  void add_all(Paths files) {
    // Files that do not fit the network at all are refused before the first prediction.
    if (std::ranges::any_of(files, is_image)) decoding_ = decoding_for(rows_);
    for (size_t i = 0; i < files.size();) {
      size_t end = i;
      while (end < files.size() && is_image(files[end])) ++end;
      add_images(files.subspan(i, end - i));
      for (i = end; i < files.size() && !is_image(files[i]); ++i) add_tensor_file(files[i]);
    }
  }

  int64_t read() const { return read_; }
  std::vector<FaultyFile>& unreadable() { return unreadable_; }
  void end() { output_.end(unreadable_); }

 private:
  static bool is_image(const std::string& path) { return !is_tensor_file(path); }

  // Few rows more are no part of their own.
  size_t next_part(size_t left) const {
    const auto most = static_cast<size_t>(rows_at_once(network_.facts()));
    return left <= most + most / 32 ? left : most;
  }

  void add_images(Paths files) {
    for (size_t begin = 0; begin < files.size();) {
      const auto part = files.subspan(begin, next_part(files.size() - begin));
      begin += part.size();
      // An image of another size may be far larger: it is refused before others are decoded beside it.
      const auto decoded = decode_files(
          part, decoding_, static_cast<int>(allowed_cores().size()),
          [&](const Pixels& image, const std::string& path) { check_size(image, path, network_.facts()); });
      std::vector<const std::string*> names;
      for (size_t i = 0; i < part.size(); ++i) {
        if (decoded[i].fault.empty()) {
          names.push_back(&part[i]);
        } else {
          unreadable_.push_back({part[i], decoded[i].fault});
        }
      }
      if (names.empty()) continue;
      const auto shares = network_.probabilities(rows_of_images(decoded, rows_), rows_);
      for (size_t i = 0; i < names.size(); ++i) add_row(*names[i], {}, shares, static_cast<int64_t>(i));
      output_.flush();
    }
  }

  void add_tensor_file(const std::string& file) {
    const auto rows = rows_in_file(file, rows_);
    for (int64_t begin = 0; begin < rows.size(0);) {
      const auto count = static_cast<int64_t>(next_part(static_cast<size_t>(rows.size(0) - begin)));
      const auto shares = network_.probabilities(rows.narrow(0, begin, count).contiguous(), rows_);
      for (int64_t i = 0; i < count; ++i) add_row(file, begin + i, shares, i);
      begin += count;
      output_.flush();
    }
  }

  void add_row(const std::string& file, std::optional<int64_t> row, const torch::Tensor& shares, int64_t at) {
    const auto classes = static_cast<size_t>(shares.size(1));
    output_.add(file, row, {shares.const_data_ptr<double>() + static_cast<size_t>(at) * classes, classes});
    ++read_;
  }

  PredictNetwork& network_;
  const RowsOfNetwork rows_;
  DecodeOptions decoding_ = {};
  PredictOutput output_;
  std::vector<FaultyFile> unreadable_;
  int64_t read_ = 0;
};

// Says what cannot be read. Throws DataError if that is an error, or if nothing is left.
void judge_unreadable(const std::vector<FaultyFile>& unreadable, int64_t read, bool skip) {
  if (unreadable.empty()) return;
  const auto count = static_cast<int64_t>(unreadable.size());
  const auto hint = "replace or remove it, or leave such files out with " + NamedOption{"skip_unreadable"};
  if (skip && read > 0) {
    warn(fmt::format("{} left out, such as: {}", counted(count, "unreadable image"),
                     unreadable.front().fault));
    return;
  }
  if (count == 1 && !skip && read == 0 && other_file_hint(unreadable.front().path)) {
    throw DataError(
        unreadable.front().fault,
        "name images, folders of them, and safetensors files with rows as the network takes them");
  }
  if (count == 1) throw DataError(unreadable.front().fault, skip ? ErrorText("name an image as well") : hint);
  for (const auto& each : unreadable) warn(each.fault);
  throw DataError(
      read == 0 ? fmt::format("none of the {} images can be read", with_commas(count))
                : fmt::format("{} cannot be read, all others have an answer", counted(count, "image")),
      "replace or remove what the lines above name" +
          (skip ? ErrorText() : ", or leave such files out with " + NamedOption{"skip_unreadable"}));
}

void add_predict_flags(CLI::App& predict, PredictOptions& options) {
  predict
      .add_option("RUN", options.weights,
                  "The folder of a run, whose newest checkpoint is taken, or that of a checkpoint, or a "
                  "safetensors file, as written by train --save")
      ->required()
      ->default_str("");
  predict
      .add_option(
          "FILE", options.files,
          "PNG and JPEG images, folders of them, and safetensors files with one tensor of rows as the "
          "network takes them, pixels as uint8")
      ->required()
      ->default_str("");
  predict
      .add_option("--image-size", options.image_size,
                  "Resize the shorter side of images, and crop the centre (default: as in training)")
      ->check(positive_int(kMostImageSide));
  predict.add_flag("--skip-unreadable", options.skip_unreadable,
                   "Leave images out that cannot be read, and say how many");
  predict.add_option("--devices", options.devices, "As for train; the rows are divided among them")
      ->type_name("LIST");
  predict.add_option("--threads", options.threads, "Threads of each replica (default: cores / replicas)")
      ->check(thread_count());
  add_choice(predict, "--precision", options.precision, kPrecisionNames, "Arithmetic of the layers");
  predict.add_flag("--json", options.json, "Print the result as JSON");
}

}  // namespace

void setup_predict(CLI::App& app) {
  auto* predict = app.add_subcommand("predict", "Classes of images and of rows in files, by saved weights");
  auto options = std::make_shared<PredictOptions>();
  add_predict_flags(*predict, *options);
  predict->callback([options] {
    refuse_several_processes("predict");
    run_predict(*options);
  });
}

void run_predict(const PredictOptions& options) {
  const auto named = named_weights(weights_of(options.weights));
  PredictNetwork network(named, usable_devices(options.devices), options.threads, options.precision);
  auto given = files_of(options.files);
  FilePredictions predictions(network, options, {{"weights", named.path}, {"model", named.file.model}});
  predictions.add_all(given.files);
  auto& unreadable = predictions.unreadable();
  unreadable.insert(unreadable.begin(), given.unreadable.begin(), given.unreadable.end());
  predictions.end();
  if (given.others > 0) {
    inform(fmt::format("{} left out by name, which is none of a PNG or JPEG", counted(given.others, "file")));
  }
  if (!given.circles.empty()) {
    inform(fmt::format("{} left out, which lead in a circle, such as {}",
                       counted(std::ssize(given.circles), "symbolic link"), given.circles.front()));
  }
  judge_unreadable(unreadable, predictions.read(), options.skip_unreadable);
}

}  // namespace lockstep
