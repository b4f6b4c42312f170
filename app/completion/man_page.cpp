#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/app/cli/help/help.h>
#include <lockstep/app/completion/completion.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// Text that roff shows as it is. A line that begins with . or ' would be a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '`') {
      out += "\\(ga";
    } else if (c == '~') {
      out += "\\(ti";
    } else if (c == '^') {
      out += "\\(ha";
    } else {
      out += c;
    }
  }
  return out.starts_with('.') ? "\\&" + out : out;
}

// A description of CLI11's tree as a sentence.
std::string sentence(const std::string& text) { return roff(text.ends_with('.') ? text : text + "."); }

// An argument of a request, in quotes.
std::string roff_argument(std::string_view text) {
  auto out = roff(text);
  for (size_t at = 0; (at = out.find('"', at)) != std::string::npos; at += 4) out.replace(at, 1, "\\(dq");
  return "\"" + out + "\"";
}

std::string roff_item(const std::string& term, std::string_view text) {
  return fmt::format(".TP\n{}\n{}\n", term, roff(text));
}

// "A, B" becomes "A," and "B" in alternating fonts.
std::string flag_term(const FlagOutline& flag) {
  auto term = flag.short_name.empty() ? "" : fmt::format("\\fB{}\\fR, ", roff(flag.short_name));
  term += fmt::format("\\fB{}\\fR", roff(flag.name));
  if (flag.value.empty()) return term;
  const bool choice = !flag.words.empty() && flag.value.find('|') != std::string::npos;
  return term + fmt::format(" {}{}\\fR", choice ? "\\fR" : "\\fI", roff(flag.value));
}

// The words of flags whose value has another name in the help: --recipe NAME.
std::string flag_text(const FlagOutline& flag) {
  if (flag.words.empty() || flag.value.find('|') != std::string::npos) return flag.text;
  std::string words;
  for (const auto& word : flag.words) words += (words.empty() ? "" : ", ") + word;
  return fmt::format("{}. Known: {}", flag.text, words);
}

std::string command_section(const CommandOutline& command, bool program) {
  auto text = fmt::format(".SS {}\n{}\n", roff_argument(usage_line(command)), sentence(command.text));
  for (const auto& argument : command.arguments) {
    text += roff_item("\\fI" + roff(argument.name) + "\\fR", argument.text);
  }
  for (const auto& flag : command.flags) {
    const bool of_all = flag.name == "--help" || flag.name == "--color";
    if (program || !of_all) text += roff_item(flag_term(flag), flag_text(flag));
  }
  if (!command.footer.empty() && !program) text += fmt::format(".PP\n{}\n", roff(command.footer));
  return text;
}

struct ExitMeaning {
  ExitCode code;
  std::string_view text;
};

constexpr ExitMeaning kExitMeanings[] = {
    {ExitCode::kDone, "Done."},
    {ExitCode::kFailed, "The run failed, or a check of a benchmark or of doctor did."},
    {ExitCode::kUsage, "Usage: a flag, a value or a combination."},
    {ExitCode::kData, "Data: missing, damaged, or not for this model."},
    {ExitCode::kWeights, "Weights or a checkpoint: missing, damaged, or of another model."},
    {ExitCode::kDevice, "Devices or communication: a GPU that is not there, a process that does not come."},
    {ExitCode::kNumeric, "The loss is NaN or infinite; in a sweep: of all cells."},
    {ExitCode::kOutput, "An output file: not writable, exists without --overwrite, disk full."},
    {ExitCode::kMemory, "Out of memory or of threads."},
    {ExitCode::kPeer, "Another process was lost or did not answer."},
    {ExitCode::kHangup, "Stopped by SIGHUP."},
    {ExitCode::kInterrupt, "Stopped by SIGINT (Ctrl-C)."},
    {ExitCode::kTerminate, "Stopped by SIGTERM."}};

constexpr std::pair<std::string_view, std::string_view> kVariables[] = {
    {"LOCKSTEP_FLAG_NAME",
     "Sets a flag: --batch-size is LOCKSTEP_FLAG_BATCH_SIZE. A flag on the command line wins."},
    {"LOCKSTEP_DATA", "The folder of the data set."},
    {"LOCKSTEP_CPU_CAPABILITY", "avx512, avx2 or portable: which CPU kernels run. Default: the best."},
    {"OMP_WAIT_POLICY, GOMP_SPINCOUNT",
     "How the threads of OpenMP wait. Without them lockstep sets 1,000 rounds of spinning."},
    {"OMP_THREAD_LIMIT", "The most threads of each replica."},
    {"NO_COLOR", "No colours."}};

}  // namespace

std::string man_page(const CommandOutline& program, const std::string& version) {
  auto text = fmt::format(
      ".\\\" Made by `lockstep man`.\n.TH LOCKSTEP 1 \"\" {} \"User Commands\"\n.nh\n.ad l\n.SH "
      "NAME\nlockstep \\- {}\n"
      ".SH SYNOPSIS\n",
      roff_argument("lockstep " + version), "data\\-parallel training on LibTorch");
  for (const auto* command : all_commands(program)) {
    if (command->subcommands.empty()) text += fmt::format("{}\n.br\n", roff(usage_line(*command)));
  }
  text += fmt::format(".SH DESCRIPTION\n{}\n{}\n.SH COMMANDS\n", roff(program.text), roff(program.footer));
  for (const auto* command : all_commands(program)) text += command_section(*command, command == &program);
  text += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitMeanings) {
    text += roff_item(fmt::format("{}", static_cast<int>(code)), meaning);
  }
  text += ".SH ENVIRONMENT\n";
  for (const auto& [name, meaning] : kVariables) text += roff_item(roff(name), meaning);
  return text;
}

}  // namespace lockstep
