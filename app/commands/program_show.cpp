#include <lockstep/app/commands/program_show.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/files/json_file.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/models/program.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr const char* kChecked =
    "sizes, offsets and CRC-32 of all records, schema, dialect, operations and their arguments";

// Refusals of a run, by flag, with the reason.
std::vector<std::pair<std::string, std::string>> refusals_of(const Program& program) {
  std::vector<std::pair<std::string, std::string>> refusals;
  if (!program.has_eval_graph()) {
    refusals.emplace_back("train, eval",
                          "no evaluation graph, and the training graph depends on the mode: export it with "
                          "scripts/export_program.py");
  }
  if (program.random()) {
    refusals.emplace_back("--invariant on GPUs", "it draws random numbers, such as for dropout");
  }
  if (program.writes_buffers() || !program.unmatched_norms().empty()) {
    refusals.emplace_back("--invariant", "training changes buffers, each replica its own");
  }
  for (const auto& norm : program.unmatched_norms()) {
    refusals.emplace_back("--bn average", "the averages of a batch norm belong to no module: " + norm);
  }
  if (!program.captures()) {
    refusals.emplace_back("--cuda-graph on", "the size of an operation's result depends on the data");
  }
  return refusals;
}

std::string text_of(const Program& program) {
  std::string text;
  const auto row = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<11}{}\n", name, printable(value));
  };
  text += printable(program.path().native()) + "\n";
  row("exported", "by torch " + program.torch_version());
  row("digest", "SHA-256 " + program.digest());
  for (const auto& input : program.inputs()) row("input", tensor_text(input));
  for (const auto& output : program.outputs()) row("output", tensor_text(output));
  row("parameters", with_commas(program.parameter_count()));
  for (const auto& [name, count] : program.operations()) {
    row("operation", fmt::format("{} {}", name, with_commas(count)));
  }
  row("batch norm", program.has_batch_norm() ? "of the batch in training: --bn" : "none");
  row("random", program.random() ? "in training" : "no");
  const auto form = program.eval_form();
  if (form.batch_norms + form.dropouts > 0)
    row("mode", eval_form_notice(program).value_or(eval_form_text(form)));
  row("evaluation", program.has_eval_graph() ? "yes" : "no");
  row("shards", "in training " + row_range_text(program.rows(/*training=*/true)));
  if (program.has_eval_graph()) {
    row("", "in evaluation " + row_range_text(program.rows(/*training=*/false)));
  }
  row("checked", kChecked);
  for (const auto& [what, why] : refusals_of(program)) row("refused", fmt::format("{}: {}", what, why));
  return text;
}

nlohmann::ordered_json json_of(const std::vector<Program::Tensor>& tensors) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& tensor : tensors) {
    list.push_back(
        {{"name", tensor.name}, {"dtype", torch::toString(tensor.dtype)}, {"sizes", tensor.sizes}});
  }
  return list;
}

nlohmann::ordered_json json_of(const Program::Rows& rows) {
  nlohmann::ordered_json json{
      {"least", rows.least}, {"most", nullptr}, {"empty", rows.empty}, {"why", rows.why}};
  if (rows.most != INT64_MAX) json["most"] = rows.most;
  return json;
}

nlohmann::ordered_json json_of(const Program& program) {
  auto refused = nlohmann::ordered_json::array();
  for (const auto& [what, why] : refusals_of(program)) refused.push_back({{"what", what}, {"why", why}});
  const auto form = program.eval_form();
  return {
      {"path", program.path().native()},
      {"torch", program.torch_version()},
      {"digest", program.digest()},
      {"inputs", json_of(program.inputs())},
      {"outputs", json_of(program.outputs())},
      {"parameters", program.parameter_count()},
      {"operations", program.operations()},
      {"batch_norm", program.has_batch_norm()},
      {"random", program.random()},
      {"eval_form", {{"batch_norms", form.batch_norms}, {"dropouts", form.dropouts}, {"whole", form.whole}}},
      {"evaluation", program.has_eval_graph()},
      {"training_rows", json_of(program.rows(/*training=*/true))},
      {"evaluation_rows", json_of(program.rows(/*training=*/false))},
      {"refused", refused}};
}

}  // namespace

void run_program_show(const std::string& path, bool json) {
  const auto program = open_program(path);
  write_stdout(json ? json_line(json_of(*program)) : text_of(*program));
}

void setup_program(CLI::App& app) {
  auto* command = app.add_subcommand("program", "Show a program that Python has exported");
  command->require_subcommand(1);
  struct Options {
    std::string path;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  auto* show =
      command->add_subcommand("show", "Check an exported program; its inputs, outputs and operations");
  show->add_option("program", options->path, "The .pt2 file")->required()->type_name("FILE");
  show->add_flag("--json", options->json, "Print it as JSON");
  show->callback([options] {
    refuse_several_processes("program show");
    run_program_show(options->path, options->json);
  });
}

}  // namespace lockstep
