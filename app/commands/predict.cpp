#include <lockstep/app/commands/predict.h>

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <utility>

#include <lockstep/app/cli/add_choice.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/commands/predict_rows.h>
#include <lockstep/app/files/json_file.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/data/resident_rows.h>
#include <lockstep/models/factory.h>
#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/training/prediction.h>
#include <lockstep/parallel/training/replica_models.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr int64_t kBestClasses = 5;

// The rows of all files, one behind the other.
struct Rows {
  std::vector<std::pair<std::string, int64_t>> origins;  // file and row in it, from 0
  torch::Tensor inputs;
};

Rows rows_of(const std::vector<std::string>& files, const NetworkFacts& facts, bool takes_bytes) {
  Rows rows;
  std::vector<torch::Tensor> parts;
  for (const auto& file : files) {
    parts.push_back(rows_in_file(file, facts, takes_bytes));
    for (int64_t row = 0; row < parts.back().size(0); ++row) rows.origins.emplace_back(file, row);
  }
  rows.inputs = torch::cat(parts);
  return rows;
}

NetworkFacts known_facts(const NamedWeights& named) {
  if (named.facts) return *named.facts;
  throw WeightsError(
      fmt::format("{} does not say what its network takes and which classes it knows", in_quotes(named.path)),
      "runs and files of earlier versions, networks without classes and files of Python do not: "
      "train --init-from FILE --limit-steps 1 --lr 1e-30 --save FILE writes one that does");
}

ModelFactory factory_of(const NamedWeights& named, const NetworkFacts& facts, Precision precision,
                        int64_t rows) {
  if (const auto& program = named.program.program) {
    check_has_evaluation(*program);
    check_evaluation_rows(*program, rows);
    return program_model(program, named.program.loss);
  }
  if (facts.row_shape.size() != 3) {
    throw WeightsError(fmt::format("{} says that {} takes rows of {} dimensions, images have 3",
                                   in_quotes(named.path), named.file.model, facts.row_shape.size()),
                       "take the weights of another run");
  }
  return make_model_factory({.name = named.file.model,
                             .channels = facts.row_shape[0],
                             .classes = std::ssize(facts.classes),
                             .dtype = dtype_of(precision),
                             .initialization = {},
                             .height = facts.row_shape[1],
                             .width = facts.row_shape[2]});
}

// (rows, classes) in double.
torch::Tensor probabilities(const NamedWeights& named, const NetworkFacts& facts, const Rows& rows,
                            const PredictOptions& options) {
  const auto devices = usable_devices(options.devices);
  check_precision(options.precision, devices);
  set_arithmetic(options.precision, /*deterministic=*/false);
  const auto count = rows.inputs.size(0);
  const auto factory = factory_of(named, facts, options.precision, count);
  const auto models = models_with(named, factory, options.precision, devices);
  ReplicaWorkers workers(devices, options.threads);
  const auto communicator =
      make_communicator({.devices = devices, .threads = options.threads, .algorithm = Allreduce::kTwoShot});
  const auto sources = sources_for(devices, resident_rows(Batch({Batch::Item{facts.input, rows.inputs}})));
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  const auto logits = predict(models, sources, numbers, options.precision, workers, *communicator);
  if (logits.dim() != 2 || logits.size(1) != std::ssize(facts.classes)) {
    throw WeightsError(
        fmt::format("the network of {} gives {} numbers per row for {} classes", in_quotes(named.path),
                    logits.dim() == 2 ? logits.size(1) : 0, facts.classes.size()),
        "predict knows networks of classes");
  }
  const auto shares = logits.to(torch::kFloat64).softmax(1);
  if (!shares.isfinite().all().item<bool>()) {
    throw NumericError(
        fmt::format("the network of {} gives numbers that are not finite", in_quotes(named.path)),
        "its weights, or the rows, hold numbers that are NaN, infinite or too large");
  }
  return shares;
}

struct Answer {
  std::vector<int64_t> classes;  // the best first
  std::vector<double> probabilities;
};

// Of equal probabilities the lower class first.
Answer answer_of(const torch::Tensor& probabilities) {
  const auto* values = probabilities.data_ptr<double>();
  Answer answer;
  answer.classes.resize(static_cast<size_t>(probabilities.numel()));
  std::iota(answer.classes.begin(), answer.classes.end(), int64_t{0});
  std::ranges::stable_sort(answer.classes, [&](int64_t a, int64_t b) { return values[a] > values[b]; });
  answer.classes.resize(std::min(answer.classes.size(), static_cast<size_t>(kBestClasses)));
  for (const auto label : answer.classes) answer.probabilities.push_back(values[label]);
  return answer;
}

// "photos.safetensors 3  trouser 98.1%  dress 1.2%, coat 0.4%, shirt 0.2%, bag 0.1%"
std::string line_of(const std::pair<std::string, int64_t>& origin, const Answer& answer,
                    const NetworkFacts& facts) {
  const auto one = [&](size_t i) {
    return fmt::format("{} {:.1f}%", printable(facts.classes[static_cast<size_t>(answer.classes[i])]),
                       100 * answer.probabilities[i]);
  };
  auto line = fmt::format("{} {}  {}", printable(origin.first), origin.second, one(0));
  for (size_t i = 1; i < answer.classes.size(); ++i) line += (i == 1 ? "  " : ", ") + one(i);
  return line + "\n";
}

nlohmann::ordered_json json_of(const std::pair<std::string, int64_t>& origin, const Answer& answer,
                               const NetworkFacts& facts) {
  auto best = nlohmann::ordered_json::array();
  for (size_t i = 0; i < answer.classes.size(); ++i) {
    best.push_back({{"class", answer.classes[i]},
                    {"name", facts.classes[static_cast<size_t>(answer.classes[i])]},
                    {"probability", answer.probabilities[i]}});
  }
  nlohmann::ordered_json json{{"file", origin.first}, {"row", origin.second}};
  json.update(best.front());
  json["best"] = std::move(best);
  return json;
}

WeightsOptions weights_of(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return {.run = path};
  return {.weights = path};
}

}  // namespace

void setup_predict(CLI::App& app) {
  auto* predict = app.add_subcommand("predict", "Classes of rows in files, by saved weights");
  auto options = std::make_shared<PredictOptions>();
  predict
      ->add_option("RUN", options->weights,
                   "The folder of a run, whose newest checkpoint is taken, or that of a checkpoint, or a "
                   "safetensors file, as written by train --save")
      ->required()
      ->default_str("");
  predict
      ->add_option("FILE", options->files,
                   "Safetensors files with one tensor of rows as the network takes them; pixels as uint8")
      ->required()
      ->default_str("");
  predict->add_option("--devices", options->devices, "As for train; the rows are divided among them")
      ->type_name("LIST");
  predict->add_option("--threads", options->threads, "Threads of each replica (default: cores / replicas)")
      ->check(thread_count());
  add_choice(*predict, "--precision", options->precision, kPrecisionNames, "Arithmetic of the layers");
  predict->add_flag("--json", options->json, "Print the result as JSON");
  predict->callback([options] {
    refuse_several_processes("predict");
    run_predict(*options);
  });
}

void run_predict(const PredictOptions& options) {
  const auto named = named_weights(weights_of(options.weights));
  const auto facts = known_facts(named);
  // An exported program gets the data as they are, lockstep's models floats.
  const auto rows = rows_of(options.files, facts, named.program.program && facts.bytes);
  const auto shares = probabilities(named, facts, rows, options);
  std::string text;
  auto predictions = nlohmann::ordered_json::array();
  for (int64_t row = 0; row < shares.size(0); ++row) {
    const auto& origin = rows.origins[static_cast<size_t>(row)];
    const auto answer = answer_of(shares[row].contiguous());
    if (options.json) {
      predictions.push_back(json_of(origin, answer, facts));
    } else {
      text += line_of(origin, answer, facts);
    }
  }
  if (!options.json) return write_stdout(text);
  write_stdout(json_line(nlohmann::ordered_json{
      {"weights", named.path}, {"model", named.file.model}, {"predictions", std::move(predictions)}}));
}

}  // namespace lockstep
