// Runs of exported programs from the command line: train, resume, export, eval, show.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/tests/app/program_data.h>
#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using Catch::Matchers::WithinRel;

namespace {

// A regression on the eight rows of the fixture's first batch, all of them in each step.
Words regression(const TempFolder& folder) {
  const auto data = write_program_data(folder / "d.safetensors", fixture_json("mlp"), 8, 8);
  return {"--program", fixture("mlp.pt2"), "--loss", "mse",       "--data", data, "--batch-size", "8", "--lr",
          ".05",       "--log-every",      "1",      "--threads", "1"};
}

std::string run(const Words& words) {
  const auto result = run_process(program(words));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return result.out;
}

nlohmann::json evaluated(const Words& words) {
  return nlohmann::json::parse(run(Words{"eval", "--json"} + words));
}

}  // namespace

TEST_CASE("one replica, two replicas and two processes train a program alike, from Python's first loss on") {
  const TempFolder folder;
  const double python = fixture_json("mlp").at("runs")[0].at("losses")[0].get<double>();
  std::vector<double> losses;
  for (const auto& [start, devices] : std::vector<std::pair<Words, std::string>>{
           {{"train"}, "cpu"}, {{"train"}, "cpux2"}, {{"launch", "-n", "2", "--", "train"}, "cpu"}}) {
    const auto file = (folder / ("m" + std::to_string(losses.size()) + ".jsonl")).string();
    const auto out =
        run(start + regression(folder) + Words{"--devices", devices, "--metrics", file, "--epochs", "5"});
    CHECK_THAT(lines(out).back(), ContainsSubstring("test loss: 0."));
    CHECK_THAT(out, ContainsSubstring(" mae "));
    CHECK_THAT(out, ContainsSubstring(" rmse ") && !ContainsSubstring("img/s"));
    const auto events = metrics_in(file);
    CHECK_THAT(events.at(1).at("loss").get<double>(), WithinRel(python, 1e-6));
    losses.push_back(events.back().at("test_loss").get<double>());
  }
  CHECK_THAT(losses.at(1), WithinRel(losses.at(0), 1e-5));
  CHECK_THAT(losses.at(2), WithinRel(losses.at(0), 1e-5));
}

TEST_CASE(
    "with each --bn two processes train a program's batch norms as one process with two replicas does") {
  const TempFolder folder;
  const auto data = write_program_data(folder / "d.safetensors", fixture_json("conv_bn"), 16, 8);
  const Words words = {"--program",
                       fixture("conv_bn.pt2"),
                       "--data",
                       data,
                       "--batch-size",
                       "8",
                       "--epochs",
                       "2",
                       "--lr",
                       ".05",
                       "--precision",
                       "fp64",
                       "--threads",
                       "1",
                       "--print-weights-hash"};
  // The hash of all weights and averages, and the test loss.
  const auto trained = [&](const Words& start, const Words& more) {
    const auto file = (folder / "metrics.jsonl").string();
    const auto out = run(start + words + more + Words{"--metrics", file, "--overwrite"});
    for (const auto& line : lines(out)) {
      if (!line.starts_with("weights sha256: ")) continue;
      for (const auto& event : metrics_in(file) | std::views::reverse) {
        if (event.contains("test_loss")) return std::pair(line, event);
      }
    }
    FAIL("no hash of the weights");
    return std::pair(std::string(), nlohmann::json());
  };
  const auto one = trained({"train"}, {"--devices", "cpu"});
  std::vector<std::string> hashes;
  for (const auto* bn : {"root", "average", "sync"}) {
    INFO(bn);
    const auto replicas = trained({"train"}, {"--devices", "cpux2", "--bn", bn});
    const auto processes = trained({"launch", "-n", "2", "--", "train"}, {"--devices", "cpu", "--bn", bn});
    CHECK(processes.first == replicas.first);
    CHECK(processes.second.at("test_loss") == replicas.second.at("test_loss"));
    CHECK(std::ranges::find(hashes, replicas.first) == hashes.end());  // each is another training
    hashes.push_back(replicas.first);
    if (bn != std::string_view("sync")) continue;
    CHECK_THAT(replicas.second.at("test_loss").get<double>(),
               WithinRel(one.second.at("test_loss").get<double>(), 1e-12));
  }
}

TEST_CASE(
    "a run of a program goes on bit by bit, also where its file has moved, and not with another program") {
  const TempFolder folder;
  const auto words = regression(folder);
  const auto run_folder = (folder / "run").string();
  const Words hash = {"--epochs", "4", "--print-weights-hash", "--quiet"};
  const auto whole = run(Words{"train"} + words + hash);
  run(Words{"train"} + words +
      Words{"--epochs", "4", "--limit-steps", "2", "--checkpoint-every", "1", "--output", run_folder});
  // The program elsewhere, under another name.
  const auto moved = (folder / "other.pt2").string();
  std::filesystem::copy_file(fixture("mlp.pt2"), moved);
  const auto resumed =
      run({"train", "--resume", run_folder, "--program", moved, "--print-weights-hash", "--quiet"});
  CHECK(lines(resumed).front() == lines(whole).front());
  CHECK_THAT(lines(resumed).front(), StartsWith("weights sha256: "));

  // The trained program is another one.
  const auto trained = (folder / "trained.pt2").string();
  run(Words{"train"} + words + Words{"--epochs", "4", "--limit-steps", "1", "--save", trained});
  const auto other = refusal(program({"train", "--resume", run_folder, "--program", trained}), 4);
  const auto digest_of = [](const std::string& file) {
    return nlohmann::json::parse(run({"program", "show", file, "--json"})).at("digest").get<std::string>();
  };
  CHECK_THAT(other, ContainsSubstring(digest_of(moved)) && ContainsSubstring(digest_of(trained)));
  CHECK_THAT(refusal(program({"train", "--resume", run_folder, "--loss", "smooth_l1"}), 4),
             ContainsSubstring("mse") && ContainsSubstring("smooth_l1"));
}

TEST_CASE("a run whose program has moved, or was replaced, is refused with its digest and where to name it") {
  const TempFolder folder;
  const auto net = (folder / "net.pt2").string(), run_folder = (folder / "run").string();
  std::filesystem::copy_file(fixture("mlp.pt2"), net);
  auto words = regression(folder);
  words.at(1) = net;
  run(Words{"train"} + words + Words{"--epochs", "2", "--limit-steps", "1", "--output", run_folder});
  const auto digest_of = [](const std::string& file) {
    return nlohmann::json::parse(run({"program", "show", file, "--json"})).at("digest").get<std::string>();
  };
  const auto digest = digest_of(net), other = digest_of(fixture("dropout.pt2"));
  const std::vector<Words> commands = {{"train", "--resume", run_folder},
                                       {"eval", run_folder},
                                       {"checkpoint", "export", run_folder, (folder / "w").string()}};
  std::filesystem::rename(net, folder / "moved.pt2");
  for (const auto& command : commands) {
    INFO(command.front());
    CHECK_THAT(refusal(program(command), 4),
               ContainsSubstring(digest) && ContainsSubstring(net) && ContainsSubstring("--program FILE"));
  }
  std::filesystem::copy_file(fixture("dropout.pt2"), net);
  for (const auto& command : commands) {
    INFO(command.front());
    CHECK_THAT(refusal(program(command), 4), ContainsSubstring(digest) && ContainsSubstring(other) &&
                                                 ContainsSubstring(net) &&
                                                 ContainsSubstring("--program FILE"));
  }
}

TEST_CASE("no output replaces the program or the data of its own run, however its path is spelt") {
  const TempFolder folder;
  const auto net = (folder / "net.pt2").string(), run_folder = (folder / "run").string();
  std::filesystem::copy_file(fixture("mlp.pt2"), net);
  auto words = regression(folder);
  words.at(1) = net;
  const auto data = (folder / "d.safetensors").string();
  std::filesystem::create_symlink(net, folder / "soft.pt2");
  std::filesystem::create_hard_link(net, folder / "hard.pt2");
  const auto relative = std::filesystem::relative(net).string();
  run(Words{"train"} + words + Words{"--epochs", "1", "--output", run_folder});
  const auto before = read_file(net), data_before = read_file(data);
  for (const auto& file :
       Words{net, relative, (folder / "soft.pt2").string(), (folder / "hard.pt2").string(), data}) {
    INFO(file);
    const auto other = (folder / "other").string();
    CHECK_THAT(
        refusal(program(Words{"train"} + words + Words{"--save", file, "--overwrite", "--output", other}), 2),
        ContainsSubstring("--save") && ContainsSubstring(file == data ? "--data" : "--program"));
    CHECK_FALSE(std::filesystem::exists(other));
    CHECK_THAT(refusal(program({"checkpoint", "export", run_folder, file, "--overwrite"}), 2),
               ContainsSubstring(file == data ? "the run's data" : "the run's program"));
    CHECK_THAT(refusal(program({"train", "--resume", run_folder, "--resume-anyway", "epochs", "--epochs", "2",
                                "--save", file, "--overwrite"}),
                       2),
               ContainsSubstring("--save"));
  }
  CHECK(read_file(net) == before);
  CHECK(read_file(data) == data_before);
  CHECK_THAT(refusal(program({"checkpoint", "export", run_folder, (folder / "w.pth").string()}), 2),
             ContainsSubstring(".pth") && ContainsSubstring(".safetensors") && ContainsSubstring(".pt2"));
}

TEST_CASE("with --invariant one and two replicas train a program with dropout to the same bits") {
  const TempFolder folder;
  const auto data = write_program_data(folder / "d.safetensors", fixture_json("dropout"), 24, 8);
  Words hashes;
  for (const auto* devices : {"cpu", "cpux2"}) {
    const auto out =
        run({"train", "--program", fixture("dropout.pt2"), "--data", data, "--batch-size", "16", "--epochs",
             "2", "--invariant", "--devices", devices, "--threads", "1", "--print-weights-hash", "--quiet"});
    hashes.push_back(lines(out).front());
  }
  CHECK_THAT(hashes.at(0), StartsWith("weights sha256: "));
  CHECK(hashes.at(0) == hashes.at(1));
}

TEST_CASE("the weights of a run are exported into a program and as a state_dict; all evaluate alike") {
  const TempFolder folder;
  const auto run_folder = (folder / "run").string();
  const auto trained = (folder / "trained.pt2").string(), weights = (folder / "w.safetensors").string();
  const auto saved = (folder / "saved.pt2").string();
  const auto words = regression(folder);
  run(Words{"train"} + words +
      Words{"--epochs", "3", "--output", run_folder, "--checkpoint-every", "1epoch", "--save", saved});
  run({"checkpoint", "export", run_folder, trained});
  run({"checkpoint", "export", run_folder, weights});
  const auto data = (folder / "d.safetensors").string();
  const Words of_data = {"--data", data, "--loss", "mse"};
  const auto loss = evaluated({run_folder}).at("test_loss").get<double>();
  const auto before =
      evaluated(Words{"--program", fixture("mlp.pt2")} + of_data).at("test_loss").get<double>();
  CHECK(loss < before);
  for (const auto& file : {trained, saved}) {
    CHECK(evaluated(Words{"--program", file} + of_data).at("test_loss") == loss);
  }
  const auto with_weights = Words{"--program", fixture("mlp.pt2"), "--weights", weights};
  CHECK(evaluated(with_weights + of_data).at("test_loss") == loss);

  CHECK_THAT(refusal(program(Words{"eval", "--weights", weights} + Words{"--data", data}), 4),
             ContainsSubstring("--program"));
  CHECK_THAT(refusal(program({"checkpoint", "export", run_folder, trained}), 7), ContainsSubstring(trained));
}

TEST_CASE("a sweep of a regression compares the test losses that its trainings have") {
  const TempFolder folder;
  const auto data = write_program_data(folder / "d.safetensors", fixture_json("mlp"), 16, 8);
  const Words words = {
      "--program", fixture("mlp.pt2"), "--loss", "mse",       "--data", data,        "--batch-size",
      "8",         "--epochs",         "2",      "--devices", "cpu",    "--threads", "1"};
  const auto file = (folder / "s.json").string(), metrics = (folder / "m.jsonl").string();
  const auto out = run(Words{"sweep"} + words + Words{"--lr", ".01,.05", "--json", file});
  CHECK_THAT(out, ContainsSubstring(" test loss ") && ContainsSubstring("# best: test loss 0."));
  run(Words{"train"} + words + Words{"--lr", ".05", "--metrics", metrics});
  std::ifstream in(file);
  const auto cells = nlohmann::json::parse(in).at("cells");
  CHECK(cells.at(1).at("test_loss") == metrics_in(metrics).back().at("test_loss"));
  CHECK(cells[0].at("test_loss") != cells[1].at("test_loss"));
  CHECK(cells[1].at("accuracy").is_null());
}

TEST_CASE("program show tells what a program takes, and what a run would refuse") {
  const auto shown = nlohmann::json::parse(run({"program", "show", fixture("mlp.pt2"), "--json"}));
  CHECK(shown.at("parameters") == 401);
  CHECK(shown.at("inputs")[0].at("sizes") == nlohmann::json({-1, 6}));
  CHECK(shown.at("operations").at("aten::linear") == 3);
  CHECK(shown.at("evaluation") == true);
  CHECK(shown.at("refused").empty());
  const auto eval = nlohmann::json::parse(run({"program", "show", fixture("plain_eval.pt2"), "--json"}));
  CHECK(eval.at("eval_form") == nlohmann::json({{"batch_norms", 1}, {"dropouts", 1}, {"whole", true}}));
  CHECK_THAT(run({"program", "show", fixture("plain_eval.pt2")}), ContainsSubstring("after eval()"));
  CHECK_THAT(run({"program", "show", fixture("narrowed.pt2")}),
             ContainsSubstring("in training 1 to 8 rows at once"));
  CHECK_THAT(run({"program", "show", fixture("encoder.pt2")}),
             ContainsSubstring("in training any number of rows at once, but not 0 ("));
  const auto text = run({"program", "show", fixture("dropout.pt2")});
  CHECK_THAT(text, ContainsSubstring("--invariant") && ContainsSubstring("aten::dropout"));
  for (const auto* name : {"custom_op", "decomposed", "pickled", "old_layout", "cond", "plain_averages"}) {
    INFO(name);
    refusal(program({"program", "show", fixture(std::string(name) + ".pt2")}), 4);
  }
}

TEST_CASE(
    "weights of a program know how its pixels are normalised; a copy of the program says that it does not") {
  const TempFolder folder;
  const auto run_folder = (folder / "run").string(), weights = (folder / "w.safetensors").string();
  const auto copy = (folder / "trained.pt2").string();
  const Words data = {"--data", "synthetic", "--synthetic-shape", "1x8x8:5", "--limit-test", "12"};
  run(Words{"train", "--program", fixture("conv_bn.pt2"), "--limit-train", "24", "--batch-size", "6"} + data +
      Words{"--normalize", ".1:.05", "--epochs", "1", "--threads", "1", "--output", run_folder, "--save",
            weights, "--quiet"});
  const auto of_run = evaluated({run_folder, "--limit-test", "12"}).at("test_loss");
  const Words with_weights = {"--program", fixture("conv_bn.pt2"), "--weights", weights};
  CHECK(evaluated(with_weights + data).at("test_loss") == of_run);
  const auto exported = run_process(program({"checkpoint", "export", run_folder, copy}));
  REQUIRE(exported.exit_code == 0);
  CHECK_THAT(exported.err, ContainsSubstring("trained.pt2' does not say how pixels are normalised"));
}
