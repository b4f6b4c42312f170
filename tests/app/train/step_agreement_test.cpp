// The agreement of processes between steps. Each process follows a script, and all must be told the same.
#include <lockstep/tests/catch.h>

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/train/step_agreement.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/thread_processes.h>

using namespace lockstep;
using lockstep::testing::run_processes;

namespace {

// "TERM output line"; "-" for no news.
std::string show(const StepNews& news) {
  std::string text;
  if (news.signal == SIGHUP) text += "HUP ";
  if (news.signal == SIGINT) text += "INT ";
  if (news.signal == SIGTERM) text += "TERM ";
  if (news.output_failed) text += "output ";
  if (news.line_due) text += "line ";
  return text.empty() ? "-" : text.substr(0, text.size() - 1);
}

using Answers = std::vector<std::string>;
using Script = std::function<Answers(int process, StepAgreement& agreement)>;

// Checks that all processes have got these answers.
void check_answers(int processes, const Script& script, const Answers& expected) {
  std::vector<Answers> answers(static_cast<size_t>(processes));
  run_processes(processes, [&](int process, const std::shared_ptr<ProcessGroup>& group) {
    StepAgreement agreement(group.get());
    answers[static_cast<size_t>(process)] = script(process, agreement);
  });
  for (const auto& own : answers) CHECK(own == expected);
}

}  // namespace

TEST_CASE("a process alone acts on its own news at once") {
  StepAgreement agreement(nullptr);
  CHECK(agreement.single_process());
  CHECK(show(agreement.after_step({.signal = SIGHUP})) == "HUP");
  CHECK(show(agreement.after_step({})) == "-");
  agreement.line_printed();
  CHECK(show(agreement.after_step({.line_due = true})) == "line");
  CHECK(show(agreement.agree_now({.signal = SIGINT, .output_failed = true})) == "INT output");
}

TEST_CASE("a signal to any process is known to all at the end of the next step") {
  for (const int signalled : {0, 1, 2}) {
    check_answers(3,
                  [&](int process, StepAgreement& agreement) {
                    Answers answers;
                    for (int step = 1; step <= 4; ++step) {
                      const bool noted = process == signalled && step >= 2;
                      answers.push_back(show(
                          agreement.after_step({.signal = noted ? std::optional(SIGTERM) : std::nullopt})));
                    }
                    answers.push_back(show(agreement.agree_now({})));
                    return answers;
                  },
                  {"-", "-", "TERM", "TERM", "TERM"});
  }
}

TEST_CASE("of different signals all processes take the same") {
  const std::vector<int> signals = {SIGTERM, SIGINT, SIGHUP};
  check_answers(3,
                [&](int process, StepAgreement& agreement) {
                  const StepNews own{.signal = signals[static_cast<size_t>(process)]};
                  Answers answers{show(agreement.agree_now(own)), show(agreement.after_step(own))};
                  answers.push_back(show(agreement.agree_now({})));
                  return answers;
                },
                {"HUP", "-", "HUP"});
}

TEST_CASE("agree_now() gives what was told before and what is told now, and leaves nothing behind") {
  check_answers(2,
                [](int process, StepAgreement& agreement) {
                  const bool first = process == 0;
                  Answers answers{show(agreement.agree_now({.output_failed = first}))};
                  answers.push_back(
                      show(agreement.after_step({.signal = first ? std::nullopt : std::optional(SIGINT)})));
                  answers.push_back(show(agreement.agree_now({.output_failed = first, .line_due = first})));
                  answers.push_back(show(agreement.after_step({})));
                  answers.push_back(show(agreement.agree_now({})));
                  return answers;
                },
                {"output", "-", "INT output line", "-", "-"});
}

TEST_CASE("a line is due where the first process says so, and printing it takes back what was told before") {
  check_answers(
      2,
      [](int process, StepAgreement& agreement) {
        const StepNews due{.line_due = process == 0};
        Answers answers{show(agreement.after_step(due)), show(agreement.after_step(due))};  // "-", "line"
        agreement.line_printed();
        answers.push_back(show(agreement.after_step(due)));  // the one that was told before the line
        answers.push_back(show(agreement.after_step({})));
        answers.push_back(show(agreement.agree_now({})));
        agreement.line_printed();  // nothing is on its way: the next one counts
        answers.push_back(show(agreement.after_step(due)));
        answers.push_back(show(agreement.agree_now({})));
        return answers;
      },
      {"-", "line", "-", "line", "-", "-", "line"});
}

TEST_CASE("a printed line takes back no signal") {
  check_answers(2,
                [](int process, StepAgreement& agreement) {
                  StepNews own{.line_due = process == 0};
                  if (process == 1) own.signal = SIGTERM;
                  Answers answers{show(agreement.after_step(own))};
                  agreement.line_printed();
                  answers.push_back(show(agreement.agree_now({})));
                  return answers;
                },
                {"-", "TERM"});
}

TEST_CASE("when a process is lost, the others are told by an error") {
  std::string error;
  const auto run = [&] {
    run_processes(2, [&](int process, const std::shared_ptr<ProcessGroup>& group) {
      StepAgreement agreement(group.get());
      agreement.agree_now({});
      if (process == 1) throw DataError("process 1 has failed");
      try {
        agreement.agree_now({});
      } catch (const PeerError& lost) {
        error = lost.message();
      }
    });
  };
  CHECK_THROWS_AS(run(), DataError);
  CHECK_FALSE(error.empty());
}
