// Fuzzes the folder of a training run's checkpoint: as it is, and with a manifest that fits what was changed.
//
// An input is the folder's files, one after the other: "=== NAME:", then the bytes. Of a safetensors file
// these are the header, a newline and the data; the length before the header is made to fit.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include <lockstep/app/train/checkpoint/contents.h>
#include <lockstep/app/train/checkpoint/same_run.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/files/sha256.h>
#include <lockstep/tests/fuzz/allocations.h>
#include <lockstep/tests/fuzz/harness.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using fuzz::require;
namespace fs = std::filesystem;

namespace {

using Files = std::map<std::string, std::string>;
using Json = nlohmann::ordered_json;

constexpr const char* kManifest = "manifest.json";

class Network : public torch::nn::Module {
 public:
  Network() {
    w_ = register_parameter("w", torch::ones({2}));
    seen_ = register_buffer("seen", torch::zeros({1}));
    steps_ = register_buffer("steps", torch::zeros({}, torch::kInt64));
  }

  Outcome loss_sum(const Batch& inputs) {
    seen_.add_(inputs.input().sum());
    steps_.add_(1);
    const auto found = inputs.input().flatten(1).slice(1, 0, 2).matmul(w_);
    return {(found - inputs.target()).square().sum()};
  }

 private:
  torch::Tensor w_, seen_, steps_;
};

// Two replicas with momentum, whose split is found.
std::unique_ptr<Trainer> make_trainer() {
  TrainerOptions options;
  options.devices = {torch::kCPU, torch::kCPU};
  options.lr = {.lr = .1};
  options.replica.optimizer.momentum = .9;
  options.auto_split = true;
  const ModelFactory factory = [] {
    auto module = std::make_shared<Network>();
    return Model{module, [module](const Batch& inputs) { return module->loss_sum(inputs); }};
  };
  const auto rows = testing::source(std::make_shared<testing::RowSource>(8));
  return std::make_unique<Trainer>(factory, rows, rows, options);
}

// The length of the header, the header, the data.
std::string with_length(std::string bytes) {
  const auto line = bytes.find('\n');
  uint64_t length = bytes.size();
  if (line != std::string::npos) {
    length = line;
    bytes.erase(line, 1);
  }
  std::string prefix;
  for (int i = 0; i < 8; ++i) prefix += static_cast<char>(length >> 8 * i);
  return prefix + bytes;
}

Files parse(const std::string& input) {
  Files files;
  const std::string mark = "=== ";
  for (auto at = input.find(mark); at != std::string::npos;) {
    const auto begin = at + mark.size();
    at = input.find(mark, begin);
    const auto part = input.substr(begin, at == std::string::npos ? at : at - begin);
    const auto name = part.substr(0, part.find(':'));
    if (name.size() == part.size() || name.empty() || name.size() > 100 || name == "." || name == "..")
      continue;
    if (name.find('/') != std::string::npos || name.find('\0') != std::string::npos) continue;
    const auto bytes = part.substr(name.size() + 1);
    files[name] = name.ends_with(".safetensors") ? with_length(bytes) : bytes;
  }
  return files;
}

// The manifest of these files as data/checkpoint.h describes it.
std::string manifest_of(const Files& files) {
  nlohmann::json entries = nlohmann::json::object();
  for (const auto& [name, bytes] : files) {
    if (name == kManifest) continue;
    Sha256 hash;
    hash.update(std::as_bytes(std::span(bytes)));
    entries[name] = {{"bytes", bytes.size()}, {"sha256", hash.hex()}};
  }
  const nlohmann::json manifest = {{"format", 1}, {"files", entries}};
  return manifest.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

fs::path clean_folder() {
  static const auto& folder = *new auto([] {
    std::string name =
        (fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path()) / "lockstep-fuzz-XXXXXX";
    require(mkdtemp(name.data()) != nullptr, "a folder can be made");
    std::atexit([] { fs::remove_all(clean_folder()); });
    return fs::path(name);
  }());
  for (const auto& entry : fs::directory_iterator(folder)) fs::remove(entry.path());
  return folder;
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  require(static_cast<bool>(file.flush()), "files can be written");
}

uint64_t write_all(const fs::path& folder, const Files& files) {
  uint64_t bytes = 0;
  for (const auto& [name, content] : files) {
    write(folder / name, content);
    bytes += content.size();
  }
  return bytes;
}

// Whatever its files hold, a checkpoint that does not match its manifest is refused.
void check_unchanged(const fs::path& folder, const Files& files) {
  const auto bytes = write_all(folder, files);
  Checkpoint checkpoint;
  if (!fuzz::accepted_within_memory(bytes, [&] { checkpoint = read_checkpoint(folder); })) return;
  Files read;
  for (const auto& [name, file] : checkpoint.tensors) read[name] = files.at(name);
  for (const auto& [name, text] : checkpoint.texts) {
    require(text == files.at(name), "texts are the files'");
    read[name] = text;
  }
  require(files.at(kManifest) == manifest_of(read), "only what the manifest says is accepted");
}

// Does what the program does with a state before the first step.
void compare_plans(const RunState& state) {
  const Json plan{{"model", "lenet"}, {"batch_size", 4}, {"lr", .1}, {"schedule", "constant"}, {"seed", 0}};
  TrainFlags flags;
  take_batch_and_rate(state.plan, flags);
  require(!bit_differences(state, plan).empty(), "the seeds' versions are not these");
  check_same_run(state.plan, plan, {});
}

// A trainer takes the state whole or not at all, and can always go on.
void check_trainer(const RunState& state) {
  static const auto& trainer = *make_trainer().release();
  auto& changed = const_cast<Trainer&>(trainer);
  fuzz::accepted([&] { changed.load(state.trainer); });
  const std::vector<int64_t> rows = {0, 1, 2, 5};
  changed.step(rows);
  changed.take_sums();
}

void check_with_manifest(const fs::path& folder, Files files) {
  files[kManifest] = manifest_of(files);
  const auto bytes = write_all(folder, files);
  RunState state;
  if (!fuzz::accepted_within_memory(bytes, [&] { state = read_state(read_checkpoint(folder)); })) return;
  const auto& position = state.position;
  require(state.trainer.steps >= 0 && position.epoch >= 1 && position.step >= 0, "counts are not negative");
  for (const auto& file : state.file_bytes) require(file.second >= 0, "sizes are not negative");
  require(position.step <= state.trainer.steps && position.epoch - 1 <= state.trainer.steps,
          "a step belongs to one epoch");
  check_trainer(state);
  const auto outcome = fuzz::last_outcome;
  fuzz::accepted([&] { compare_plans(state); });
  fuzz::last_outcome = outcome + fuzz::last_outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto files = parse(fuzz::text_of(data, size));
  check_unchanged(clean_folder(), files);
  check_with_manifest(clean_folder(), files);
  return 0;
}
