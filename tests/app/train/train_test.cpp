// `lockstep train`: what it prints, writes and refuses, and that it repeats bit by bit.
#include <lockstep/tests/catch.h>
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

TEST_CASE("train prints its plan, step lines, epoch lines, and a last line in the chapter's format") {
  const auto result = run_process(train({"--epochs", "2", "--log-every", "2", "--devices", "cpux2"}));
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK_THAT(
      result.out,
      ContainsSubstring("lenet-scratch") && ContainsSubstring("129,068 parameters") &&
          ContainsSubstring("[cpu, cpu]: 2 replicas with 1 thread each") &&
          ContainsSubstring("128 images per step, 64 per replica; 5 steps per epoch, the last with 128"));
  const std::regex step(
      R"(epoch [12]/2 \| step [24]/5 \| loss \d\.\d{4} \| top1 +\d+\.\d% top5 +\d+\.\d% \| [\d,]+ img/s)");
  const std::regex last_step(R"(epoch 2/2 \| step 5/5 .*)");
  const std::regex epoch(
      R"(epoch [12]/2 \| train loss \d\.\d{4} acc \d\.\d{3} \| test loss \d\.\d{4} acc \d\.\d{3} \| \d+\.\d s)");
  const std::regex phases(
      R"(    lr 0\.2 \| ms per step: data \d+\.\d, compute \d+\.\d, sync \d+\.\d, update \d+\.\d)");
  int steps = 0, last_steps = 0, epochs = 0, phase_lines = 0;
  for (const auto& line : lines(result.out)) {
    steps += std::regex_match(line, step);
    last_steps += std::regex_match(line, last_step);
    epochs += std::regex_match(line, epoch);
    phase_lines += std::regex_match(line, phases);
    CHECK(line.find('\r') == std::string::npos);    // a pipe gets plain lines,
    CHECK(line.find('\x1b') == std::string::npos);  // without colours
  }
  CHECK(steps == 4);
  CHECK(last_steps == 1);
  CHECK(epochs == 2);
  CHECK(phase_lines == 2);
  CHECK(std::regex_match(lines(result.out).back(),
                         std::regex(R"(test acc: [01]\.\d\d, \d+\.\d sec/epoch on \[cpu, cpu\])")));
}

TEST_CASE("train --quiet prints only the last line") {
  const auto result = run_process(train({"--epochs", "1", "--quiet"}));
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK(std::regex_match(result.out, std::regex("test acc: .* sec/epoch on \\[cpu\\]\n")));
}

TEST_CASE("with plain lines a terminal shows the curve after each epoch, a pipe does not") {
  auto process = train({"--epochs", "2", "--progress", "plain"});
  process.on_terminal = true;
  process.environment = {{"TERM", "xterm"}, {"LC_ALL", "C.UTF-8"}};
  const auto text = run_process(process).out;
  const auto shown = lines(text);
  const auto piped = lines(run_process(train({"--epochs", "2"})).out);
  CHECK(shown.size() >= piped.size() + 2 * 8);

  // The plan has rows that are wider than a terminal, which shows them in two lines.
  const auto plan = text.substr(0, text.find("\nepoch "));
  CHECK(widest_line(plan) <= 80);
  CHECK_THAT(with_single_blanks(plan), ContainsSubstring("128 images per step, 128 per replica; 5 steps per "
                                                         "epoch, the last with 128 training 2 epochs"));
  CHECK(std::any_of(piped.begin(), piped.end(), [](const auto& line) { return line.size() > 80; }));
}

TEST_CASE("the same command gives the same bits, another seed or number of replicas gives others") {
  const auto once = weights_hash({});
  CHECK(weights_hash({}) == once);
  CHECK(weights_hash({"--seed", "1"}) != once);
  const auto two = weights_hash({"--devices", "cpux2"});
  CHECK(weights_hash({"--devices", "cpux2"}) == two);
}

TEST_CASE("training learns") {
  const auto result =
      run_process(train({"--limit-train", "6000", "--batch-size", "32", "--epochs", "3", "--quiet"}));
  std::smatch match;
  REQUIRE(std::regex_search(result.out, match, std::regex("test acc: ([0-9.]+)")));
  CHECK(std::stod(match[1]) > .3);  // chance is .1
}

TEST_CASE("train --limit-steps ends early, evaluates, and says how sec/epoch is scaled") {
  const auto result = run_process(train({"--limit-steps", "7"}));
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("epoch  2/10 | step 2/5") &&
                             ContainsSubstring("stopped after 7 steps") && ContainsSubstring("\ntest acc: "));
  CHECK_THAT(result.out, !ContainsSubstring("epoch  3/10"));
}

TEST_CASE("train --limit-test evaluates on the first images, and says so in the plan and the last line") {
  const SmallData all(640, 300), only(640, 100);  // the same images, but fewer test images
  const auto run = [](const SmallData& data, const Words& words) {
    return metrics_of(Words{"--data", data.folder(), "--optimizer", "adamw", "--lr", ".005", "--batch-size",
                            "16", "--epochs", "2"} +
                      words);
  };
  const auto limited = run(all, {"--limit-test", "100"});
  const auto expected = run(only, {}), whole = run(all, {});
  CHECK(limited.front().at("test_rows") == 100);
  const auto epochs = events_named("epoch", limited);
  REQUIRE(epochs.size() == 2);
  for (size_t i = 0; i < epochs.size(); ++i) {
    for (const auto* key : {"test_loss", "test_accuracy", "test_top5", "train_loss"}) {
      INFO(key);
      CHECK(epochs[i].at(key) == events_named("epoch", expected)[i].at(key));
    }
    CHECK(epochs[i].at("test_loss") != events_named("epoch", whole)[i].at("test_loss"));
  }

  const auto printed =
      run_process(train({"--data", all.folder(), "--limit-steps", "1", "--limit-test", "100"}));
  CHECK_THAT(printed.out,
             ContainsSubstring("640 training and the first 100 of 300 test images (" + all.folder()));
  const std::regex last(
      R"(test acc: [01]\.\d\d \(the first 100 of 300 images\), \d+\.\d sec/epoch on \[cpu\])");
  CHECK(std::regex_match(lines(printed.out).back(), last));
  // A limit of all images is no limit.
  const auto every =
      run_process(train({"--data", all.folder(), "--limit-steps", "1", "--limit-test", "300"}));
  CHECK_THAT(every.out, ContainsSubstring("640 training and 300 test images") && !ContainsSubstring("first"));
}

TEST_CASE("train --metrics writes the lines as JSON") {
  const TempFolder folder;
  const auto file = (folder / "run.jsonl").string();
  const auto result =
      run_process(train({"--epochs", "2", "--log-every", "5", "--metrics", file, "--print-weights-hash"}));
  REQUIRE(result.exit_code == 0);
  const auto events = metrics_in(file);
  REQUIRE(events.size() == 6);
  Words kinds;
  for (const auto& event : events) kinds.push_back(event.at("event"));
  CHECK(kinds == Words{"plan", "step", "epoch", "step", "epoch", "end"});
  CHECK(events[0].at("devices") == json{"cpu"});
  CHECK(events[3].at("epoch") == 2);
  CHECK(events[3].at("step") == 5);
  CHECK(events[3].at("compute_ms") > 0);
  CHECK(events[4].at("test_accuracy") == events[5].at("test_accuracy"));
  CHECK_THAT(result.out, ContainsSubstring(events[5].at("weights_sha256").get<std::string>()));
}

TEST_CASE("train --metrics says how, when and where the run was made") {
  const TempFolder folder;
  const auto file = (folder / "a run.jsonl").string();
  const auto before = std::time(nullptr);
  REQUIRE(run_process(train({"--limit-steps", "1", "--limit-test", "10", "--metrics", file})).exit_code == 0);
  const auto plan = metrics_in(file).front();
  CHECK(plan.at("command") ==
        "lockstep train --data synthetic --limit-train 640 --batch-size 128 --threads 1 "
        "--limit-steps 1 --limit-test 10 --metrics '" +
            file + "'");
  const auto& environment = plan.at("environment");
  std::tm date{};
  const auto text = environment.at("date").get<std::string>();
  REQUIRE(strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &date) == text.c_str() + text.size());
  CHECK(timegm(&date) >= before);
  CHECK(timegm(&date) <= std::time(nullptr));
  const auto version = run_process(program({"--version"})).out;  // "lockstep 0.1.0, commit 1a2b3c4d5e..."
  const auto& libraries = environment.at("libraries");
  CHECK_THAT(version,
             ContainsSubstring("lockstep " + libraries.at("lockstep").get<std::string>()) &&
                 ContainsSubstring("LibTorch " + libraries.at("LibTorch").get<std::string>()) &&
                 ContainsSubstring(", commit " + environment.at("commit").get<std::string>() + "\n"));
  CHECK_THAT(libraries.at("compiler").get<std::string>(), ContainsSubstring(__VERSION__));
  CHECK(environment.at("cores") > 0);
}

TEST_CASE("train --metrics of a run that was stopped ends with a line that says so") {
  const TempFolder folder;
  const auto file = (folder / "run.jsonl").string();
  const auto result = stopped_run({"--log-every", "1", "--metrics", file}, SIGTERM, "step 2/5");
  const auto end = metrics_in(file).back();
  CHECK(end.at("event") == "end");
  CHECK(end.at("status") == "stopped");
  CHECK(end.at("steps") >= 2);
  CHECK_THAT(result.err, ContainsSubstring(end.at("reason").get<std::string>()));
}

TEST_CASE("a step line describes its own steps: its phases take no longer than the whole") {
  // Each epoch has 5 steps. The last two have no line.
  const auto steps = events_named("step", metrics_of({"--epochs", "3", "--log-every", "3"}));
  for (const auto& step : steps) {
    double parts = 0;
    for (const auto* part : {"data_ms", "compute_ms", "sync_ms", "update_ms"}) {
      parts += step.at(part).get<double>();
    }
    CHECK(parts <= step.at("step_ms").get<double>());
  }
  CHECK(steps.size() == 4);
}

TEST_CASE("an existing output file is replaced only with --overwrite, else the run stops before training") {
  const TempFolder folder;
  const auto file = (folder / "run.jsonl").string();
  std::ofstream(file) << "precious\n";
  const auto refused = run_process(train({"--metrics", file}));
  CHECK(refused.exit_code == 7);
  CHECK(refused.out.empty());
  CHECK_THAT(refused.err, ContainsSubstring(file) && ContainsSubstring("--overwrite"));
  CHECK(run_process(train({"--metrics", file, "--dry-run"})).exit_code == 7);
  std::ifstream in(file);
  std::string kept;
  std::getline(in, kept);
  CHECK(kept == "precious");
  CHECK(run_process(train({"--metrics", file, "--overwrite", "--epochs", "1", "--quiet"})).exit_code == 0);
  std::ifstream replaced(file);
  std::getline(replaced, kept);
  CHECK_THAT(kept, ContainsSubstring("\"event\":\"plan\""));
}

TEST_CASE("train --dry-run prints the plan with a memory estimate, and does not train or write") {
  const TempFolder folder;
  const auto file = (folder / "run.jsonl").string();
  const auto result = run_process(train({"--dry-run", "--metrics", file}));
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("memory") &&
                             ContainsSubstring("MB resident at the peak (estimate)") &&
                             !ContainsSubstring("test acc"));
  CHECK_FALSE(std::filesystem::exists(file));
}

// plan/flag_values_test.cpp has the values of flags.
TEST_CASE("a bad value gives one line that says what and why, and an exit code") {
  struct Case {
    Words words;
    int code;
    std::string says;
  };
  for (const auto& [words, code, says] :
       std::vector<Case>{{{"--batch-size", "-3"}, 2, "-3"},
                         {{"--devices", "gpu"}, 2, "'gpu'"},
                         {{"--data", "/nonexistent/folder"}, 3, "/nonexistent/folder"},
                         {{"--data", ""}, 3, "--data DIR names a folder, --data synthetic needs no files"},
                         {{"--metrics", "/nonexistent/run.jsonl"}, 7, "/nonexistent"},
                         {{"--metrics", "/"}, 7, "'/'"}}) {
    INFO(words[0] << " " << words[1]);
    CHECK_THAT(refusal(train(words), code), ContainsSubstring(says));
  }
}

TEST_CASE("a GPU in the list on a machine without one is an error that says what is missing") {
  for (const auto* devices : {"cuda", "cuda:7"}) {
    auto process = train({"--devices", devices});
    process.environment = {{"CUDA_VISIBLE_DEVICES", ""}};
    const auto result = run_process(process);
    CHECK(result.exit_code == 5);
    CHECK(result.out.empty());
    CHECK_THAT(result.err,
               ContainsSubstring("cannot be used") && ContainsSubstring("hint: use --devices cpu"));
  }
}

TEST_CASE("fewer rows than replicas, and fewer than a batch") {
  const auto result = run_process(train({"--limit-train", "3", "--devices", "cpux4", "--epochs", "1"}));
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out,
             ContainsSubstring("1 step per epoch, with only 3 images") && ContainsSubstring("step 1/1"));
  CHECK(result.err ==
        "lockstep: warning: 4 replicas share a batch of 3 images: some of them compute nothing\n");
}

TEST_CASE("demo scratch shows what the chapter shows") {
  Process process;
  process.command = {LOCKSTEP_PROGRAM, "demo", "scratch", "--devices", "cpux2"};
  const auto result = run_process(process);
  CHECK(result.exit_code == 0);
  CHECK_THAT(
      result.out,
      ContainsSubstring("b1 grad:\n  [ 0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0] on cpu"));
  CHECK_THAT(result.out,
             ContainsSubstring("before allreduce:\n  [ 1  1] on cpu\n  [ 2  2] on cpu\nafter allreduce:\n "
                               " [ 3  3] on cpu\n  [ 3  3] on cpu\n"));
  CHECK_THAT(result.out, ContainsSubstring("  [ 0  1  2  3  4]\n  [ 5  6  7  8  9] on cpu") &&
                             ContainsSubstring("  [10 11 12 13 14]\n  [15 16 17 18 19] on cpu"));
}
