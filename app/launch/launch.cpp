#include <lockstep/app/launch/launch.h>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include <lockstep/app/cli/launched_words.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/launch/child.h>
#include <lockstep/app/launch/command.h>
#include <lockstep/app/launch/cores.h>
#include <lockstep/app/launch/launch_signals.h>
#include <lockstep/app/launch/process_output.h>
#include <lockstep/app/launch/supervise.h>
#include <lockstep/app/launch/variables.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/parallel/collectives/gloo/store_server.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/suggest.h>

namespace lockstep {
namespace {

constexpr int kMostLaunched = 1024;
constexpr int kMostRestarts = 1'000'000;
constexpr size_t kLastLines = 20;
constexpr size_t kRandomBytes = 16;
constexpr size_t kManyPerCore = 4;  // processes
constexpr const char* kAutoProcesses = "auto";

// The same at every start of the processes.
struct LaunchPlan {
  LaunchCommand command = {};
  int processes = 1;
  int max_restarts = 0;
  std::vector<int> cores = {};
  std::string run = {};
  std::string token = {};
};

CLI::Validator number_of_processes() {
  const auto check = [number = positive_int(kMostLaunched)](const std::string& text) -> std::string {
    if (text == kAutoProcesses) return {};
    if (text.find_first_of("0123456789") != std::string::npos) return number(text);
    const std::vector<std::string> names = {kAutoProcesses};
    const auto* near = nearest(text, names) ? "\ndid you mean 'auto'?" : "";
    return fmt::format("must be a number or auto, got {}{}", in_quotes(text), near);
  };
  return CLI::Validator(check, "");
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* subcommand : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(subcommand->get_name());
  }
  return names;
}

void refuse_inside_a_launch() {
  const char* rank = std::getenv("RANK");
  if (!rank) return;
  throw UsageError(
      fmt::format("launch was started by a launcher: RANK is {}", in_quotes(rank)),
      "start it once, outside of lockstep launch and torchrun; unset RANK if nobody launched it");
}

std::string counted_processes(int count) {
  return count == 1 ? "1 process" : fmt::format("{} processes", count);
}

LaunchPlan make_launch_plan(const LaunchOptions& options, LaunchCommand command) {
  LaunchPlan plan{.command = std::move(command), .max_restarts = options.max_restarts};
  plan.cores = by_socket(allowed_cores());
  if (options.processes == kAutoProcesses) {
    plan.processes = automatic_processes(visible_gpus(), plan.cores);
  } else {
    plan.processes = std::stoi(options.processes);
  }
  if (static_cast<size_t>(plan.processes) > kManyPerCore * plan.cores.size()) {
    warn(fmt::format("{} share {}", counted_processes(plan.processes),
                     counted(static_cast<int64_t>(plan.cores.size()), "core")));
  }
  plan.run = random_hex(kRandomBytes);
  plan.token = random_hex(kRandomBytes);
  return plan;
}

ChildPlan child_plan(const LaunchPlan& plan, int process, int restart, const StoreServer& store) {
  const LaunchVariables variables{.process = process,
                                  .processes = plan.processes,
                                  .host = store.host(),
                                  .port = store.port(),
                                  .run = plan.run,
                                  .token = plan.token,
                                  .restart = restart,
                                  .max_restarts = plan.max_restarts};
  return {.path = plan.command.path,
          .words = plan.command.words,
          .environment = environment_with(variables),
          .cores = cores_of_process(plan.cores, process, plan.processes)};
}

bool is_subcommand(const LaunchPlan& plan) { return plan.command.words.front() == "lockstep"; }

// Programs that never join each other train alone, without a word.
void warn_if_alone(const LaunchPlan& plan, const LaunchOutcome& outcome, const StoreServer& store) {
  const bool done = !outcome.failure && !outcome.signal;
  if (!done || plan.processes == 1 || is_subcommand(plan) || store.used()) return;
  warn(fmt::format(
      "none of the {} has used the launcher's store: if they train, each trains alone; a program joins the "
      "others by join_process_group(find_world())",
      counted_processes(plan.processes)));
}

// Process 0 prints where the launcher would.
LaunchOutcome start_all(const LaunchPlan& plan, int restart, const std::optional<ProcessOutput>& outputs,
                        LaunchSignals& signals) {
  const StoreServer store;
  std::vector<Child> children;
  children.reserve(static_cast<size_t>(plan.processes));
  for (int process = 0; process < plan.processes; ++process) {
    const auto output = process == 0 ? OwnedFd() : outputs->create(process, restart);
    auto child = child_plan(plan, process, restart, store);
    child.output = output.get();
    children.emplace_back(child, signals.blocked_before());
  }
  auto outcome = supervise(children, signals);
  warn_if_alone(plan, outcome, store);
  return outcome;
}

// Shows the last lines of the failed process. The user has seen those of process 0.
void show_last_lines(const ProcessFailure& failure, int restart,
                     const std::optional<ProcessOutput>& outputs) {
  if (failure.process == 0) return;
  for (auto& line : last_lines(outputs->file(failure.process, restart), kLastLines)) {
    for (char& c : line) c = c == '\t' ? ' ' : c;
    const auto text = fmt::format("process {}: {}\n", failure.process, printable(line));
    std::fputs(text.c_str(), stderr);
  }
}

// Returns true if the reader of the launcher's, and so of process 0's, output or errors has gone.
bool nobody_reads() {
  pollfd streams[] = {{.fd = STDOUT_FILENO, .events = 0, .revents = 0},
                      {.fd = STDERR_FILENO, .events = 0, .revents = 0}};
  return ::poll(streams, std::size(streams), 0) > 0 &&
         std::ranges::any_of(streams, [](const auto& s) { return (s.revents & (POLLERR | POLLHUP)) != 0; });
}

// Keeps what the processes have printed, and says where it is. A subcommand's error of usage is the same in
// all of them.
std::string keep_output(const ProcessFailure& failure, const LaunchPlan& plan,
                        std::optional<ProcessOutput>& outputs) {
  const bool seen = is_subcommand(plan) && failure.process == 0 && failure.code == ExitCode::kUsage;
  const int processes = plan.processes;
  if (!outputs || seen) return "";
  outputs->keep();
  const auto whose = processes == 2 ? "process 1" : fmt::format("processes 1 to {}", processes - 1);
  return fmt::format("the output of {} is in {}", whose, outputs->folder().string());
}

// The processes have failed, or were stopped.
[[noreturn]] void end_launch(const LaunchOutcome& outcome, const LaunchPlan& plan,
                             std::optional<ProcessOutput>& outputs) {
  const auto& failure = outcome.failure;
  const auto kept = failure ? keep_output(*failure, plan, outputs) : "";
  if (!outcome.signal) throw Error(failure->code, failure->text, kept);
  if (failure) warn(fmt::format("{}{}{}", failure->text, kept.empty() ? "" : "; ", kept));
  throw InterruptedError(*outcome.signal, fmt::format("with its {}", counted_processes(plan.processes)));
}

}  // namespace

void setup_launch(CLI::App& app, std::vector<std::string> command) {
  auto* launch =
      app.add_subcommand(std::string(kLaunch), "Start a command in several processes on this machine");
  auto options = std::make_shared<LaunchOptions>();
  options->command = std::move(command);
  launch
      ->add_option("-n,--processes", options->processes,
                   "How many to start; auto: one per GPU, or one per CPU socket if there is no GPU")
      ->type_name("N|auto")
      ->check(number_of_processes())
      ->required();
  launch
      ->add_option("--max-restarts", options->max_restarts,
                   "How often all processes are started again after one has failed")
      ->check(non_negative_int(kMostRestarts));
  launch->footer(
      "COMMAND is a subcommand of lockstep with its flags, or a program with its arguments, by a path that "
      "contains a slash: lockstep launch -n 2 -- train --epochs 3. " +
      launch->get_footer());
  launch->callback([options, &app] { run_launch(*options, subcommand_names(app)); });
}

void run_launch(const LaunchOptions& options, std::span<const std::string> subcommands) {
  refuse_inside_a_launch();
  auto command = launch_command(options.command, subcommands);
  LaunchSignals signals;  // before the first thread
  const auto plan = make_launch_plan(options, std::move(command));
  std::optional<ProcessOutput> outputs;
  if (plan.processes > 1) outputs.emplace();
  for (int restart = 0;; ++restart) {
    const auto outcome = start_all(plan, restart, outputs, signals);
    const auto& failure = outcome.failure;
    if (!failure && !outcome.signal) return;
    if (is_subcommand(plan)) {  // process 0 may have been killed
      Terminal(STDERR_FILENO, ColorMode::kNever).erase_leftovers();
    }
    if (outcome.broken_pipe && nobody_reads()) throw ReaderGoneError("nobody reads the output of process 0");
    if (failure) show_last_lines(*failure, restart, outputs);
    const bool again =
        failure && failure->code != ExitCode::kUsage && !outcome.signalled && restart < plan.max_restarts;
    if (!again) end_launch(outcome, plan, outputs);
    warn(fmt::format("{}; {} start again (restart {} of {})", failure->text,
                     counted_processes(plan.processes), restart + 1, plan.max_restarts));
  }
}

}  // namespace lockstep
