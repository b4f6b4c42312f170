// The parts of a kept run: intervals, folders, files of a checkpoint, and what may go on from it.
#include <signal.h>
#include <sys/resource.h>

#include <lockstep/tests/catch.h>

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/app/checkpoint/contents.h>
#include <lockstep/app/checkpoint/folder_lock.h>
#include <lockstep/app/checkpoint/interval.h>
#include <lockstep/app/checkpoint/run_folder.h>
#include <lockstep/app/checkpoint/same_run.h>
#include <lockstep/app/checkpoint/writer.h>
#include <lockstep/app/files/growing_file.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

RunState state_of(int64_t step) {
  RunState state;
  state.trainer.steps = step;
  state.trainer.model = {{"w", torch::full({3}, static_cast<double>(step), torch::kFloat32)}};
  state.trainer.optimizer = {{"momentum_buffer.w", torch::full({3}, .5)}, {"step", torch::tensor(2.f)}};
  for (int rank = 0; rank < 3; ++rank) {
    state.trainer.replicas.push_back({.buffers = {{"bn.mean", torch::full({2}, rank)}},
                                      .rows_trained = 10 + rank,
                                      .host_generator = torch::full({5}, rank, torch::kUInt8),
                                      .device_generator = torch::empty({0}, torch::kUInt8)});
  }
  state.trainer.split = {.5, .25, .25};
  state.progress = {
      .epoch = 2, .step = 1, .epoch_seconds = 1.5, .seconds = 2.5, .lr = .1, .accuracy = {.5, .75}};
  state.progress.left_out = {{3, 4}, {6, 6}};
  state.progress.epoch_sums = {.loss = 1. / 3, .top1 = 4, .top5 = 5, .rows = 6, .bad = {}};
  state.plan = {{"model", "lenet"}, {"batch_size", 64}, {"lr", .1}};
  state.environment = {{"instructions", "avx2"}};
  state.file_bytes = {{"metrics.csv", 99}, {"metrics.jsonl", int64_t{1} << 40}};
  return state;
}

// A list of so many.
std::string list_of(const std::string& value, size_t count) {
  std::string text = "[" + value;
  while (--count > 0) text += "," + value;
  return text + "]";
}

// A run with checkpoints of these steps.
RunFolder run_with(const fs::path& path, const std::vector<int64_t>& steps) {
  const RunFolder run(path);
  run.create();
  for (const auto step : steps) write_checkpoint(run.checkpoint(step), to_checkpoint(state_of(step)));
  return run;
}

void damage(const RunFolder& run, int64_t step) { write_file(run.checkpoint(step) / "state.json", "{}"); }

struct Warnings {
  std::vector<std::string> texts;
  std::function<void(const std::string&)> add = [this](const std::string& text) { texts.push_back(text); };
};

class InFolder {  // the current folder while it lives
 public:
  explicit InFolder(const fs::path& path) : before_(fs::current_path()) { fs::current_path(path); }
  ~InFolder() { fs::current_path(before_); }

 private:
  const fs::path before_;
};

}  // namespace

TEST_CASE("--checkpoint-every takes steps, seconds and epochs") {
  CHECK(parse_interval("500").steps == 500);
  CHECK(parse_interval("1step").steps == 1);
  CHECK(parse_interval("60s").seconds == 60);
  CHECK(parse_interval("1epoch").epochs == 1);
  CHECK(parse_interval("2epochs").epochs == 2);
  for (const std::string bad : {"", "0", "-1", "1.5", "s", "3x", "5 s", "1epochss", "99999999999999999999"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_interval(bad), UsageError);
  }
}

TEST_CASE("a run's state is read from its checkpoint as it was") {
  const auto found = read_state(to_checkpoint(state_of(4)));
  const auto expected = state_of(4);
  CHECK(found.trainer.steps == 4);
  CHECK(found.trainer.split == expected.trainer.split);
  CHECK(found.trainer.model.at(0).tensor.equal(expected.trainer.model.at(0).tensor));
  CHECK(found.trainer.optimizer.at(1).tensor.equal(torch::tensor(2.f)));
  REQUIRE(found.trainer.replicas.size() == 3);
  for (int rank = 0; rank < 3; ++rank) {
    const auto& replica = found.trainer.replicas[static_cast<size_t>(rank)];
    CHECK(replica.rows_trained == 10 + rank);
    CHECK(replica.buffers.at(0).name == "bn.mean");
    CHECK(replica.buffers.at(0).tensor.equal(torch::full({2}, rank)));
    CHECK(replica.host_generator.equal(torch::full({5}, rank, torch::kUInt8)));
    CHECK(replica.device_generator.numel() == 0);
  }
  CHECK(to_json(found.progress) == to_json(expected.progress));
  CHECK(found.progress.epoch_sums.loss == 1. / 3);
  CHECK(to_json(found.progress.left_out) == to_json(expected.progress.left_out));
  CHECK(found.plan == expected.plan);
  CHECK(found.environment == expected.environment);
  CHECK(found.file_bytes == expected.file_bytes);
}

TEST_CASE("files that are not a run's checkpoint are refused") {
  const auto refused = [](const auto& change, const std::string& text) {
    auto checkpoint = to_checkpoint(state_of(1));
    change(checkpoint);
    CHECK_THROWS_WITH(read_state(std::move(checkpoint)), ContainsSubstring(text));
  };
  refused([](auto& c) { c.texts.clear(); }, "it has no state.json");
  refused([](auto& c) { c.texts["state.json"] = "["; }, "state.json is not JSON");
  refused([](auto& c) { c.texts["state.json"] = "{}"; }, "steps");
  refused([](auto& c) { c.texts["state.json"] = std::string(80'000, '['); }, "nested more than 64 deep");
  const auto with = [](const std::string& key, const std::string& value) {
    return [key, value](auto& c) {
      auto json = Json::parse(c.texts["state.json"]);
      json[Json::json_pointer(key)] = Json::parse(value);
      c.texts["state.json"] = json.dump();
    };
  };
  refused(with("/progress/step", "-5"), "state.json has step -5 of epoch 2 after 1 in all");
  refused(with("/progress/step", "5"), "step 5 of epoch 2 after 1 in all");
  refused(with("/progress/epoch", "0"), "epoch 0");
  refused(with("/progress/epoch", "4611686018427387904"), "epoch 4611686018427387904");
  refused(with("/file_bytes/metrics.csv", "-1"), "-1 bytes of metrics.csv");
  refused(with("/steps", "-3"), "after -3 in all");
  refused(with("/progress/accuracy", list_of("0", 250'001)), "JSON that is too long");
  refused(with("/environment", list_of("[]", 10'001)), "JSON that is too long");
  refused([](auto& c) { c.tensors.erase("optimizer.safetensors"); }, "it has no optimizer.safetensors");
  for (const std::string name :
       {"0.other", "x.buffers.a", "buffers.a", "99999999.rows_trained", "0rows_trained"}) {
    refused([&](auto& c) { c.tensors["replicas.safetensors"].tensors.at(0).name = name; },
            "a tensor named '" + name + "'");
  }
}

TEST_CASE("runs are numbered, and a folder in use is not used again") {
  const TempFolder folder;
  const InFolder here(folder.path());
  CHECK(create_numbered_run("lenet").path() == "runs/lenet-0001");
  CHECK(create_numbered_run("lenet").path() == "runs/lenet-0002");
  CHECK(create_numbered_run("lenet-b").path() == "runs/lenet-b-0001");
  fs::create_directory("runs/lenet-0041");
  write_file("runs/lenet-0050", "a file");
  CHECK(create_numbered_run("lenet").path() == "runs/lenet-0042");
  const auto runs = numbered_runs("lenet");
  REQUIRE(runs.size() == 4);
  CHECK(runs.front().path() == "runs/lenet-0042");
  CHECK(runs.back().path() == "runs/lenet-0001");
  CHECK_THROWS_AS(runs.front().create(), OutputError);  // it has its folder of checkpoints
  runs.front().create(/*again=*/true);
  CHECK_THROWS_AS(RunFolder("runs/lenet-0050").create(), OutputError);
}

TEST_CASE("a run goes on from its newest checkpoint that verifies; damaged ones are named") {
  const TempFolder folder;
  Warnings warnings;
  const auto run = run_with(folder / "r", {8, 16, 123456789});
  const auto step_of = [&](const std::string& resume, const std::optional<std::string>& output = {}) {
    const auto found = find_checkpoint(resume, output, "lenet", warnings.add);
    return found ? found->state.trainer.steps : -1;
  };
  CHECK(step_of(run.path()) == 123456789);
  CHECK(step_of("auto", run.path()) == 123456789);
  CHECK(warnings.texts.empty());
  damage(run, 123456789);
  CHECK(step_of(run.path()) == 16);
  REQUIRE(warnings.texts.size() == 1);
  CHECK_THAT(warnings.texts[0],
             ContainsSubstring("step-123456789' is damaged") && ContainsSubstring("skipped"));
  damage(run, 16);
  damage(run, 8);
  CHECK_THROWS_WITH(step_of(run.path()), ContainsSubstring("has no whole checkpoint"));
  CHECK_THROWS_WITH(step_of("auto", run.path()), ContainsSubstring("none of the 3 checkpoints in"));
  CHECK_THROWS_WITH(step_of(folder / "none"), ContainsSubstring("there is no such folder"));

  run.set_aside_after(8);
  CHECK(run.steps() == std::vector<int64_t>{8});
  CHECK(fs::exists(run.checkpoint(16).native() + ".damaged"));
}

TEST_CASE("--resume auto finds the newest run of its name that has a checkpoint") {
  const TempFolder folder;
  const InFolder here(folder.path());
  Warnings warnings;
  CHECK_FALSE(find_checkpoint("auto", std::nullopt, "lenet", warnings.add));
  run_with("runs/lenet-0001", {5});
  run_with("runs/lenet-0002", {3, 4});
  run_with("runs/lenet-0003", {});
  run_with("runs/other-0009", {9});
  const auto found = find_checkpoint("auto", std::nullopt, "lenet", warnings.add);
  REQUIRE(found);
  CHECK(found->run.path() == "runs/lenet-0002");
  CHECK(found->state.trainer.steps == 4);
}

TEST_CASE("a named checkpoint must be its run's newest, unless the run goes on in a new folder") {
  const TempFolder folder;
  Warnings warnings;
  const auto run = run_with(folder / "r", {8, 16});
  link_checkpoint(run.checkpoint(16), "last");
  const auto last = find_checkpoint(run.checkpoints() / "last", std::nullopt, "lenet", warnings.add);
  REQUIRE(last);
  CHECK(last->state.trainer.steps == 16);
  CHECK(fs::equivalent(last->run.path(), run.path()));
  CHECK_THROWS_WITH(find_checkpoint(run.checkpoint(8), std::nullopt, "lenet", warnings.add),
                    ContainsSubstring("is of step 8, but the run has a checkpoint of step 16"));
  CHECK_THROWS_WITH(find_checkpoint(run.checkpoint(8), run.path().native(), "lenet", warnings.add),
                    ContainsSubstring("is of step 8, but the run has a checkpoint of step 16"));
  CHECK(find_checkpoint(run.checkpoint(8), "new", "lenet", warnings.add)->state.trainer.steps == 8);
  fs::rename(run.checkpoint(8), folder / "moved");
  CHECK_THROWS_WITH(find_checkpoint(folder / "moved", std::nullopt, "lenet", warnings.add),
                    ContainsSubstring("is in no run folder"));
}

TEST_CASE("the writer keeps the newest checkpoints and the best one, and names the last") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {});
  CheckpointWriter writer(run, {.keep = 2});
  const std::vector<double> accuracy = {.5, .9, .7, .8};
  for (size_t i = 0; i < accuracy.size(); ++i) {
    auto state = state_of(static_cast<int64_t>(10 * (i + 1)));
    state.progress.accuracy.assign(accuracy.begin(), accuracy.begin() + static_cast<std::ptrdiff_t>(i + 1));
    writer.save(std::move(state), accuracy[i]);
    writer.save(state_of(static_cast<int64_t>(10 * (i + 1) + 5)), std::nullopt);  // within the next epoch
  }
  writer.finish();
  CHECK(writer.written() == 45);
  CHECK(run.steps() == std::vector<int64_t>{20, 40, 45});
  CHECK(fs::read_symlink(run.checkpoints() / "best") == "step-00000020");
  CHECK(fs::read_symlink(run.checkpoints() / "last") == "step-00000045");
}

TEST_CASE("the best checkpoint is the best of those written, whatever other epochs reached") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {});
  CheckpointWriter writer(run, {.keep = 2});
  const auto save = [&](int64_t step, std::vector<double> accuracy) {
    auto state = state_of(step);
    state.progress.accuracy = std::move(accuracy);
    const double newest = state.progress.accuracy.back();
    writer.save(std::move(state), newest);
    writer.finish();
    return fs::read_symlink(run.checkpoints() / "best").native();
  };
  CHECK(save(10, {.5, .4}) == "step-00000010");
  CHECK(save(20, {.5, .4, .9, .8}) == "step-00000020");  // .9 has no checkpoint
  CHECK(save(30, {.5, .4, .9, .8, .7}) == "step-00000020");
  CHECK(run.best_accuracy() == .8);
}

TEST_CASE("one process at a time writes to a run's folder") {
  const TempFolder folder;
  {
    const FolderLock lock(folder.path());
    CHECK_THROWS_WITH(FolderLock(folder.path()),
                      ContainsSubstring("another process writes to the run folder"));
  }
  CHECK_NOTHROW(FolderLock(folder.path()));
}

TEST_CASE("a checkpoint that cannot be written is an error of the next call, once") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {});
  CheckpointWriter writer(run, {.keep = 2});
  fs::remove_all(run.checkpoints());
  writer.save(state_of(1), std::nullopt);
  CHECK_THROWS_AS(writer.finish(), OutputError);
  writer.finish();
  fs::create_directory(run.checkpoints());
  writer.save(state_of(2), std::nullopt);
  writer.finish();
  CHECK(run.steps() == std::vector<int64_t>{2});
}

TEST_CASE("with --on-save-error continue a checkpoint that cannot be written is no error") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {});
  std::vector<CheckpointCost> costs;
  CheckpointWriter writer(run, {.keep = 2,
                                .on_error = OnSaveError::kContinue,
                                .written = [&](const auto& cost) { costs.push_back(cost); }});
  fs::remove_all(run.checkpoints());
  writer.save(state_of(1), std::nullopt);
  writer.finish();
  CHECK(costs.empty());
  fs::create_directory(run.checkpoints());
  writer.save(state_of(2), std::nullopt);
  writer.finish();
  CHECK(run.steps() == std::vector<int64_t>{2});
  REQUIRE(costs.size() == 1);
  CHECK(costs[0].step == 2);
  CHECK(costs[0].tensor_bytes ==
        3 * 4 + 3 * 4 + 4 + 3 * 2 * 8);  // w, its momentum, step, three replicas' bn.mean
  CHECK(costs[0].wrote > 0);
}

TEST_CASE("a run takes batch size and rate of its checkpoint, unless flags give them") {
  const Json saved = {{"batch_size", 64}, {"lr", .3}};
  TrainFlags flags;
  take_settings(saved, flags);
  CHECK(flags.batch_size == 64);
  CHECK(flags.lr == .3);
  TrainFlags given;
  given.batch_size = 32;
  given.lr = .1;
  take_settings(saved, given);
  CHECK(given.batch_size == 32);
  CHECK(given.lr == .1);
}

TEST_CASE("another training than the checkpoint's is refused, or taken where that is asked for") {
  const Json saved = {
      {"model", "lenet"}, {"lr", .1}, {"batch_size", 64}, {"schedule", "cosine"}, {"epochs", 10}};
  const std::vector<std::string> none;
  check_same_run(saved, saved, none);
  auto other = saved;
  other["lr"] = .2;
  CHECK_THROWS_WITH(check_same_run(saved, other, none), "the checkpoint's run has lr 0.1, this one has 0.2");
  check_same_run(saved, other, std::vector<std::string>{"lr"});
  CHECK_THROWS_AS(check_same_run(saved, other, std::vector<std::string>{"momentum"}), WeightsError);
  other = saved;
  other["model"] = "resnet18";
  for (const auto& setting : changeable_settings()) {
    CHECK_THROWS_AS(check_same_run(saved, other, std::vector<std::string>{setting}), WeightsError);
  }
  other = saved;
  other["epochs"] = 20;
  CHECK_THROWS_AS(check_same_run(saved, other, none), WeightsError);
  check_same_run(saved, other, std::vector<std::string>{"epochs"});
  other["schedule"] = "constant";
  auto constant = saved;
  constant["schedule"] = "constant";
  check_same_run(constant, other, none);  // the rate does not depend on the length
}

TEST_CASE("what changes the last bits is told") {
  RunState state;
  state.plan = {{"threads", 2}, {"devices", {"cpu"}}, {"kernels", "auto"}};
  Json planned = {{"threads", 1}, {"devices", {"cpu", "cpu"}}, {"kernels", "auto"}};
  const auto contains = [&](const std::string& text) {
    const auto found = other_bits(state, planned);
    return std::find(found.begin(), found.end(), text) != found.end();
  };
  CHECK(contains("threads 1 instead of 2"));
  CHECK(contains("devices [\"cpu\",\"cpu\"] instead of [\"cpu\"]"));
  planned["invariant"] = true;
  CHECK_FALSE(contains("devices [\"cpu\",\"cpu\"] instead of [\"cpu\"]"));
}

TEST_CASE("a growing file is cut to what is kept, and grows from there") {
  const TempFolder folder;
  const auto path = folder / "a";
  { GrowingFile(path, 100).write("one\n"); }
  {
    GrowingFile file(path, 100);
    CHECK(file.size() == 4);
    file.write("two\nthree\n");
    CHECK(file.size() == 14);
  }
  GrowingFile file(path, 8);
  CHECK(read_file(path) == "one\ntwo\n");
  file.write("four\n");
  CHECK(read_file(path) == "one\ntwo\nfour\n");
  CHECK_THROWS_AS(GrowingFile(folder / "none" / "a", 0), OutputError);
}

TEST_CASE("a line that does not fit on the disk leaves the growing file as it was") {
  const TempFolder folder;
  GrowingFile file(folder / "a", 0);
  file.write("one\n");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);  // so that write() fails, as on a full disk
  const rlimit small{.rlim_cur = 6, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  CHECK_THROWS_AS(file.write("two\n"), OutputError);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  CHECK(read_file(folder / "a") == "one\n");
  file.write("two\n");
  CHECK(read_file(folder / "a") == "one\ntwo\n");
}
