#include <lockstep/app/commands/eval.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <CLI/CLI.hpp>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <lockstep/app/cli/add_choice.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/commands/check_facts.h>
#include <lockstep/app/commands/count_confusion.h>
#include <lockstep/app/files/json_file.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/run_files/row_sums.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/combinations.h>
#include <lockstep/app/train/plan/dataset.h>
#include <lockstep/app/train/plan/notices.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/app/train/plan/program_labels.h>
#include <lockstep/app/train/progress/evaluation_notice.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/data/data_kind.h>
#include <lockstep/models/factory.h>
#include <lockstep/models/program.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/training/evaluation.h>
#include <lockstep/parallel/training/replica_models.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/losses.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

ModelFactory factory_of(const NamedWeights& named, const LoadedData& data, Precision precision) {
  if (const auto& program = named.program.program) {
    check_has_evaluation(*program);
    check_batch(*program, data.set.spec, named.program.loss.loss == ProgramLoss::kOwn);
    check_labels(*program, named.program.loss, data.set, /*test_only=*/true);
    check_evaluation_rows(*program, data.set.test.rows);
    return program_model(program, named.program.loss, named.loss);
  }
  auto spec = model_spec(named.file.model, data.set);
  if (named.facts) spec.classes = std::ssize(named.facts->classes);  // the data may have the first ones alone
  spec.dtype = dtype_of(precision);
  spec.label_smoothing = named.loss.label_smoothing;
  spec.class_weights = named.loss.class_weights;
  return make_model_factory(spec);
}

bool is_same_data(const std::string& a, const std::optional<std::string>& b) {
  std::error_code ignored;
  return b && (a == *b || std::filesystem::equivalent(a, *b, ignored));
}

// Values that were not given are the run's, unless other data are named, and the network's.
DataFlags data_flags(const EvalOptions& options, const NamedWeights& named) {
  const auto& given = options.data;
  const bool other = given.path && !is_same_data(*given.path, named.run.data.path);
  auto flags = other ? DataFlags{.path = given.path} : named.run.data;
  const auto take = [](auto& value, const auto& wanted) {
    if (wanted) value = wanted;
  };
  take(flags.test_share, given.test_share);
  take(flags.image_size, given.image_size);
  take(flags.synthetic_shape, given.synthetic_shape);
  take(flags.data_memory, given.data_memory);
  take(flags.workers, given.workers);
  flags.skip_unreadable |= given.skip_unreadable;
  flags.limit_test = given.limit_test;
  if (named.facts) flags = with_facts(std::move(flags), *named.facts);
  // The network says which channels image files have, so that those for training need not be read.
  if (flags.channels) flags.limit_train = 1;
  return flags;
}

// Says what differs from the data that the network was trained on, and gives it the rows as it takes them.
void give_as_taken(LoadedData& data, const NamedWeights& named) {
  for (const auto& notice : data.notices) warn(notice);
  Normalization normalization;
  if (named.facts) {
    for (const auto& odd : check_facts(*named.facts, data)) warn(odd);
    normalization = normalization_of(*named.facts);
  }
  if (const auto& program = named.program.program) {
    data.set = as_inputs(std::move(data.set), *program, normalization);
  } else {
    data.set = as_images(std::move(data.set), named.file.model, normalization);
  }
}

// The networks with their weights. Those of some models fit one size of images alone.
std::vector<Model> models_for(const NamedWeights& named, const LoadedData& data, Precision precision,
                              const std::vector<torch::Device>& devices) {
  try {
    return models_with(named, factory_of(named, data, precision), precision, devices);
  } catch (const WeightsError&) {
    const auto own = facts_of(data.set);
    if (!data.flags.image_size || !named.facts || !own || named.facts->row_shape == own->row_shape) throw;
    throw UsageError(
        fmt::format("--image-size {}: the weights of {} in {} fit rows [{}] alone, as they were trained",
                    *data.flags.image_size, named.file.model, named.path,
                    fmt::join(named.facts->row_shape, ", ")),
        "leave --image-size out, or train a network for that size");
  }
}

// Before anything is evaluated.
void check_confusion(const NamedWeights& named, const TrainingData& data) {
  check_has_confusion(data);
  const auto loss = named.program.program ? named.program.loss.loss : ProgramLoss::kClassification;
  if (loss == ProgramLoss::kClassification) return;
  throw UsageError(
      fmt::format("--confusion counts classes, the program's loss is {}", loss_text(named.program.loss)),
      "leave --confusion out, or name the output that has logits: --loss classification:OUTPUT");
}

// The accuracy in the run's metrics is that of its own images.
void warn_of_other_images(const RunData& run, const LoadedData& data) {
  const auto& test = data.set.test;
  if (!run.test_rows || test.rows < *run.test_rows) return;
  if (test.hash_of_first(*run.test_rows) == run.test_hash) return;
  warn(fmt::format("the run was tested on other {}s than those of {} ({}): --data DIR names them",
                   data.set.row_noun, data.set.name, data.origin));
}

void warn_of_threads(std::optional<int> threads, const std::vector<torch::Device>& devices) {
  for (const auto& notice : {many_threads_notice(threads), few_threads_notice(threads, devices)}) {
    if (notice) warn(*notice);
  }
}

// "top1 90.00% (9,000 of 10,000)": the first count has the number of rows behind it.
std::string exact_text(const RowSums& sums, const MetricSum& metric) {
  const auto& kind = metric.kind;
  if (kind.type == MetricType::kMean || kind.own_weight || kind.finish) return mean_text(sums, metric);
  const bool first = &metric == &sums.metrics.front();
  return fmt::format("{} {:.2f}% ({}{})", kind.name, 100 * sums.value(metric),
                     with_commas(std::llround(metric.sum)), first ? " of " + with_commas(sums.rows) : "");
}

std::string result_text(const std::string& path, const std::string& model, const LoadedData& data,
                        const std::vector<torch::Device>& devices, const RowSums& result, double seconds) {
  const auto limited =
      data.test_limited() ? fmt::format(", {} test {}s", data.test_count(), data.set.row_noun) : "";
  auto figures = fmt::format("test loss {:.4f}", result.mean_loss());
  for (const auto& metric : result.metrics) figures += " | " + exact_text(result, metric);
  return fmt::format("{}: {} on {} ({}){}\n{} | {:.1f} s on {}\n", path, model, data.set.name, data.origin,
                     limited, figures, seconds, to_string(devices));
}

nlohmann::ordered_json result_json(const std::string& path, const std::string& model, const LoadedData& data,
                                   const std::vector<torch::Device>& devices, const RowSums& result,
                                   const std::optional<Confusion>& confusion, double seconds) {
  auto names = nlohmann::ordered_json::array();
  for (const auto& device : devices) names.push_back(device.str());
  nlohmann::ordered_json json{{"weights", path},          {"model", model},
                              {"data", data.set.name},    {"data_origin", data.origin},
                              {"test_rows", result.rows}, {"all_test_rows", data.all_test_rows},
                              {"devices", names}};
  json.update(test_means(result));
  json["test_seconds"] = seconds;
  if (confusion) json["confusion"] = to_json(*confusion);
  return json;
}

}  // namespace

void setup_eval(CLI::App& app) {
  auto* eval = app.add_subcommand("eval", "Test accuracy of saved weights, on all devices at once");
  auto options = std::make_shared<EvalOptions>();
  eval->add_option("RUN", options->run,
                   "The folder of a run, whose newest checkpoint is taken, or that of a checkpoint")
      ->default_str("");
  eval->add_option("--weights", options->weights,
                   "Instead of RUN: a safetensors file, as written by train --save")
      ->type_name("FILE");
  eval->add_option("--model", options->model, "Model of the weights (default: the model that the file names)")
      ->check(one_of(model_names()));
  eval->add_option(
          "--program", options->program,
          "Instead of RUN: an exported program, with the weights of its file or of --weights; of a RUN "
          "that has trained one: where its file is now")
      ->type_name("FILE");
  add_loss_flag(*eval, "--loss", options->loss);
  eval->add_option(
          "--data", options->data.path,
          fmt::format("As --data of train: a folder, a safetensors file or {} (default: the run's, else as "
                      "train)",
                      known_data_words()))
      ->type_name("DIR|FILE");
  eval->add_option("--seed", options->seed, "Seed of synthetic data (default: the run's, else 0)")
      ->check(non_negative_int());
  add_limit_test_flag(*eval, options->data.limit_test);
  add_data_flags(*eval, options->data);
  eval->add_option("--devices", options->devices, "As for train; the test rows are divided among them")
      ->type_name("LIST");
  eval->add_option("--threads", options->threads, "Threads of each replica (default: cores / replicas)")
      ->check(thread_count());
  add_choice(*eval, "--precision", options->precision, kPrecisionNames, "Arithmetic of the layers");
  eval->add_flag("--confusion", options->confusion,
                 "Also count which classes are taken for which; 'lockstep plot' draws the counts of --json");
  eval->add_flag("--json", options->json, "Print the result as JSON");
  eval->callback([options] {
    refuse_several_processes("eval");
    run_eval(*options);
  });
}

void run_eval(const EvalOptions& options) {
  const auto devices = usable_devices(options.devices);
  const auto precision = options.precision;
  check_precision(precision, devices);
  set_arithmetic(precision, /*deterministic=*/false);
  const auto named = named_weights(options);
  const auto& [path, file, trained_on] = std::tie(named.path, named.file, named.run);
  auto data = load_data(data_flags(options, named), options.seed.value_or(trained_on.seed.value_or(0)));
  // Hashes of images in folders are of names and sizes, others of the pixels that were resized.
  const bool other_pixels = options.data.image_size && data.kind != to_string(DataKind::kImageFolder);
  if (!options.data.path && !options.seed && !other_pixels) warn_of_other_images(trained_on, data);
  warn_of_threads(options.threads, devices);
  if (const auto notice = not_finite_notice(data.set.test_faults)) warn(*notice);
  give_as_taken(data, named);
  if (options.confusion) check_confusion(named, data.set);
  const auto models = models_for(named, data, precision, devices);

  ReplicaWorkers workers(devices, options.threads);
  // For one small collective: NCCL would take longer to start.
  const auto communicator =
      make_communicator({.devices = devices, .threads = options.threads, .algorithm = Allreduce::kTwoShot});
  const auto sources = sources_for(devices, data.set.test.sources);
  Stopwatch watch;
  const auto result =
      evaluate(models, sources, precision, workers, *communicator, EvaluationNotice(data.set.row_noun));
  if (!std::isfinite(result.loss)) {
    const auto& odd = data.set.test_faults.not_finite;
    throw NumericError(fmt::format("the test loss of the weights in {} is not finite", path),
                       odd.empty()
                           ? "the file holds numbers that are NaN, infinite, or too large to compute with"
                           : fmt::format("{}: leave such rows out of the data, or replace the number", odd));
  }
  const double seconds = watch.lap();
  std::optional<Confusion> confusion;
  if (options.confusion) {
    confusion = count_confusion(models, sources, data.set, precision, workers, *communicator);
  }
  if (options.json) {
    return write_stdout(json_line(result_json(path, file.model, data, devices, result, confusion, seconds)));
  }
  write_stdout(result_text(path, file.model, data, devices, result, seconds));
  if (confusion) write_stdout(confusion_text(*confusion, data.set.row_noun));
}

}  // namespace lockstep
