#include <lockstep/app/train/checkpoint/command.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/app/files/distinct_files.h>
#include <lockstep/app/files/json_file.h>
#include <lockstep/app/files/program_weights.h>
#include <lockstep/app/files/weights_file.h>
#include <lockstep/app/files/weights_name.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/checkpoint/run_config.h>
#include <lockstep/app/train/checkpoint/run_folder.h>
#include <lockstep/app/train/checkpoint/run_program.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/models/program.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Throws WeightsError if the folder is no run's.
RunFolder existing_run(const std::string& path) {
  const RunFolder run(path);
  std::error_code ignored;
  if (fs::is_directory(run.checkpoints(), ignored)) return run;
  const auto name = in_quotes(path);
  throw WeightsError(fs::exists(path, ignored) ? name + " is no run: it has no folder 'checkpoints'"
                                               : "no run " + name + ": there is no such folder",
                     "name the folder that 'lockstep train --output' has made");
}

struct Listed {
  int64_t step = 0;
  uint64_t bytes = 0;
  std::string problem = {};  // why its state cannot be read; empty: it can
  int64_t epoch = 0;
  std::optional<double> accuracy = {};  // of the newest evaluation before it
  std::vector<std::string> names = {};  // "last", "best"
};

Listed look_at(const RunFolder& run, int64_t step) {
  const auto path = run.checkpoint(step);
  Listed listed{.step = step, .bytes = bytes_in(path)};
  for (const auto* name : {kLastLink, kBestLink}) {
    std::error_code ignored;
    if (fs::read_symlink(run.checkpoints() / name, ignored) == path.filename())
      listed.names.emplace_back(name);
  }
  const auto position = position_of(path);
  if (!position) {
    listed.problem = "its state cannot be read";
    return listed;
  }
  listed.epoch = position->epoch - (position->step == 0 ? 1 : 0);
  listed.accuracy = position->last_accuracy();
  return listed;
}

std::string line_of(const Listed& listed) {
  std::string names;
  for (const auto& name : listed.names) names += " " + name;
  const auto accuracy = listed.accuracy ? fmt::format("{:.3f}", *listed.accuracy) : "-";
  if (!listed.problem.empty()) return fmt::format("{:>10}  {}\n", listed.step, listed.problem);
  return fmt::format("{:>10} {:>6} {:>9} {:>13}{}\n", listed.step, listed.epoch, accuracy,
                     with_commas(static_cast<int64_t>(listed.bytes)), names);
}

Json json_of(const Listed& listed, const RunFolder& run) {
  Json json{{"step", listed.step}, {"path", run.checkpoint(listed.step).native()}, {"bytes", listed.bytes}};
  if (!listed.problem.empty()) {
    json["problem"] = listed.problem;
    return json;
  }
  json["epoch"] = listed.epoch;
  json["test_accuracy"] = listed.accuracy ? Json(*listed.accuracy) : Json();
  json["names"] = listed.names;
  return json;
}

// The files that the run needs to go on.
std::vector<FileFlag> inputs_of(const FoundCheckpoint& found, const Program* program) {
  std::vector<FileFlag> inputs;
  if (program) inputs.push_back({"the run's program", program->path().native()});
  const auto data = run_data(found).data.path;
  if (data && is_tensor_file(*data)) inputs.push_back({"the run's data", *data});
  return inputs;
}

}  // namespace

void run_checkpoint_ls(const std::string& path, bool json) {
  const auto run = existing_run(path);
  std::vector<Listed> all;
  for (const auto step : run.steps()) all.push_back(look_at(run, step));
  if (json) {
    auto list = Json::array();
    for (const auto& listed : all) list.push_back(json_of(listed, run));
    return write_stdout(json_line({{"run", path}, {"checkpoints", list}}));
  }
  auto text = fmt::format("# {}\n# {:>8} {:>6} {:>9} {:>13}\n", run.checkpoints().native(), "step", "epoch",
                          "accuracy", "bytes");
  for (const auto& listed : all) text += line_of(listed);
  write_stdout(text);
}

void run_checkpoint_verify(const std::string& path) {
  std::vector<fs::path> checkpoints;
  const bool named = is_checkpoint(path);
  if (named) {
    checkpoints.emplace_back(path);
  } else {
    const auto run = existing_run(path);
    for (const auto step : run.steps()) checkpoints.push_back(run.checkpoint(step));
  }
  size_t damaged = 0;
  for (const auto& checkpoint : checkpoints) {
    std::string result = "whole";
    try {
      auto files = read_checkpoint(checkpoint);
      if (!named || !is_of_program(files)) read_state(std::move(files));
    } catch (const WeightsError& error) {
      result = error.message();
      ++damaged;
    }
    write_stdout(fmt::format("{}: {}\n", checkpoint.native(), result));
  }
  if (damaged == 0) return;
  throw WeightsError(fmt::format("{} of {} {} damaged", damaged, counted(checkpoints.size(), "checkpoint"),
                                 damaged == 1 ? "is" : "are"),
                     "--resume skips damaged ones; a run that goes on sets them aside");
}

void run_checkpoint_export(const std::string& path, const std::string& file, bool overwrite, bool trained,
                           const std::optional<std::string>& program_path) {
  check_can_save(file, overwrite);  // before it is read, and so that no other file is written in its place
  auto found = open_checkpoint(path, warn);
  if (trained) found.state.trainer.average.clear();
  const auto program = run_program(found, program_path).program;
  check_weights_name("FILE", file, program != nullptr);
  check_distinct_files({{"FILE", file}}, inputs_of(found, program.get()));
  auto weights = evaluated_weights(std::move(found.state.trainer));
  const auto& plan = found.state.plan;
  const auto facts = plan.contains("network") ? read_facts(plan.at("network")) : std::nullopt;
  if (program) {
    save_program_weights(program, weights, file, overwrite, facts);
  } else {
    save_weights(std::move(weights), plan.at("model").get<std::string>(), file, overwrite, facts);
  }
  write_stdout(fmt::format("weights of {} saved to {}\n", found.path.native(), file));
}

void setup_checkpoint(CLI::App& app) {
  auto* command = app.add_subcommand("checkpoint", "List, verify or export the checkpoints of a run");
  command->require_subcommand(1);
  struct Options {
    std::string path, file;
    std::optional<std::string> program;
    bool json = false, overwrite = false, trained = false;
  };
  const auto options = std::make_shared<Options>();
  auto* ls = command->add_subcommand("ls", "List a run's checkpoints");
  ls->add_option("run", options->path, "Folder of the run")->required()->type_name("DIR");
  ls->add_flag("--json", options->json, "Print them as JSON");
  ls->callback([options] { run_checkpoint_ls(options->path, options->json); });

  auto* verify = command->add_subcommand("verify", "Compare checkpoints with their manifests");
  verify->add_option("path", options->path, "Folder of a run, or of one checkpoint")
      ->required()
      ->type_name("DIR");
  verify->callback([options] { run_checkpoint_verify(options->path); });

  auto* out = command->add_subcommand("export", "Write the weights of a checkpoint to a file");
  out->add_option("checkpoint", options->path,
                  "Folder of the checkpoint, or of a run, whose newest one is taken")
      ->required()
      ->type_name("DIR");
  out->add_option(
         "file", options->file,
         "Safetensors file to write, or of a run of an exported program a .pt2 file: the program with "
         "these weights")
      ->required()
      ->type_name("FILE");
  out->add_option("--program", options->program, "The run's exported program, if its file has moved")
      ->type_name("FILE");
  out->add_flag("--overwrite", options->overwrite, "Replace an existing file");
  out->add_flag("--trained", options->trained, "Of a run with --ema: the weights, not their average");
  out->callback([options] {
    refuse_several_processes("checkpoint export");
    run_checkpoint_export(options->path, options->file, options->overwrite, options->trained,
                          options->program);
  });
}

}  // namespace lockstep
