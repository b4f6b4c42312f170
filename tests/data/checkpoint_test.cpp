// A checkpoint appears whole or not at all, whatever fails while it is written; all damage is found.
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>
#include <fstream>
#include <string>
#include <vector>

#include <lockstep/data/checkpoint.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/temporary_file.h>
#include <lockstep/tests/support/file_limit.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/in_memory.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

Checkpoint small_checkpoint(int seed) {
  Checkpoint checkpoint;
  checkpoint.tensors["model.safetensors"] = {
      .tensors = {{"a", torch::arange(7, torch::kFloat32).add(seed)}, {"b.c", torch::full({2, 3}, seed)}},
      .metadata = {{"model", "lenet"}}};
  checkpoint.tensors["optimizer.safetensors"] = {.tensors = {{"step", torch::tensor(2.5)}}, .metadata = {}};
  checkpoint.texts["state.json"] = "{\"steps\": " + std::to_string(seed) + "}\n";
  return checkpoint;
}

bool same(const Checkpoint& a, const Checkpoint& b) {
  if (a.texts != b.texts || a.tensors.size() != b.tensors.size()) return false;
  for (const auto& [name, file] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end() || other->second.metadata != file.metadata) return false;
    if (other->second.tensors.size() != file.tensors.size()) return false;
    for (const auto& tensor : file.tensors) {
      bool found = false;
      for (const auto& candidate : other->second.tensors) {
        found |= candidate.name == tensor.name && candidate.tensor.equal(tensor.tensor);
      }
      if (!found) return false;
    }
  }
  return true;
}

// All files of a run's, together 16 KiB.
Checkpoint large_checkpoint() {
  auto checkpoint = small_checkpoint(1);
  for (const auto* name : {"model.safetensors", "optimizer.safetensors", "replicas.safetensors"}) {
    checkpoint.tensors[name].tensors.push_back({"large", torch::arange(1250, torch::kInt32)});
  }
  checkpoint.texts["state.json"] = std::string(1000, ' ') + "{}";
  return checkpoint;
}

bool is_found(const fs::path& checkpoint) {
  try {
    verify_checkpoint(checkpoint);
  } catch (const WeightsError&) {
    return true;
  }
  return false;
}

// How many bytes of this file can be flipped unnoticed.
size_t missed_flips(const fs::path& checkpoint, const std::string& name, const std::string& bytes) {
  size_t missed = 0;
  std::fstream file(checkpoint / name, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](size_t at, int mask) {
    file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(bytes[at] ^ mask)).flush();
  };
  for (size_t i = 0; i < bytes.size(); ++i) {
    put(i, 1 << (i % 8));
    missed += !is_found(checkpoint);
    put(i, 0);
  }
  REQUIRE(file.good());
  return missed;
}

// How many of these truncations.
size_t missed_truncations(const fs::path& checkpoint, const std::string& name, const std::string& bytes) {
  size_t missed = 0;
  for (size_t cut = 1; cut <= bytes.size(); ++cut) {
    fs::resize_file(checkpoint / name, bytes.size() - cut);
    missed += !is_found(checkpoint);
  }
  write_file(checkpoint / name, bytes);
  return missed;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the size of all files.
size_t check_all_damage_is_found(const Checkpoint& content) {
  const TempFolder folder(in_memory());
  const auto checkpoint = folder / "c";
  write_checkpoint(checkpoint, content);
  verify_checkpoint(checkpoint);
  size_t all_bytes = 0;
  for (const auto& name : names_in(checkpoint)) {
    const auto bytes = read_file(checkpoint / name);
    all_bytes += bytes.size();
    INFO(name);
    CHECK(missed_flips(checkpoint, name, bytes) == 0);
    CHECK(missed_truncations(checkpoint, name, bytes) == 0);
    write_file(checkpoint / name, bytes + " ");
    CHECK(is_found(checkpoint));
    fs::remove(checkpoint / name);
    CHECK(is_found(checkpoint));
    write_file(checkpoint / name, bytes);
    verify_checkpoint(checkpoint);
  }
  return all_bytes;
}

}  // namespace

TEST_CASE("a checkpoint is read as it was written, and replaces one of its name") {
  const TempFolder folder;
  write_checkpoint(folder / "step-1", small_checkpoint(1));
  CHECK(names_in(folder.path()) == std::vector<std::string>{"step-1"});
  CHECK(names_in(folder / "step-1") == std::vector<std::string>{"manifest.json", "model.safetensors",
                                                                "optimizer.safetensors", "state.json"});
  CHECK(same(read_checkpoint(folder / "step-1"), small_checkpoint(1)));
  CHECK_FALSE(same(read_checkpoint(folder / "step-1"), small_checkpoint(2)));

  write_checkpoint(folder / "step-1", small_checkpoint(2));
  CHECK(same(read_checkpoint(folder / "step-1"), small_checkpoint(2)));
  CHECK(names_in(folder.path()) == std::vector<std::string>{"step-1"});
}

TEST_CASE("a tensor that is written in many parts is read as it was") {
  constexpr int64_t kOdd = (9 << 20) + (1 << 18) + 1;  // bytes: two early write-backs, and a rest
  const TempFolder folder;
  auto checkpoint = small_checkpoint(1);
  auto& tensors = checkpoint.tensors["model.safetensors"].tensors;
  tensors.push_back({"large", torch::arange(kOdd).remainder(251).to(torch::kUInt8)});
  write_checkpoint(folder / "step", checkpoint);
  CHECK(same(read_checkpoint(folder / "step"), checkpoint));
}

TEST_CASE("the manifest's digests are those of sha256sum") {
  const TempFolder folder;
  write_checkpoint(folder / "c", {.tensors = {}, .texts = {{"state.json", "abc"}}});
  // NIST's example for "abc".
  CHECK(read_file(folder / "c/manifest.json") ==
        "{\n  \"files\": {\n    \"state.json\": {\n      \"bytes\": 3,\n      \"sha256\": "
        "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\n    }\n  },\n  \"format\": "
        "1\n}\n");
}

TEST_CASE("links name a checkpoint and are replaced; a removed checkpoint leaves nothing") {
  const TempFolder folder;
  for (int step : {1, 2}) {
    write_checkpoint(folder / ("step-" + std::to_string(step)), small_checkpoint(step));
    link_checkpoint(folder / ("step-" + std::to_string(step)), "last");
  }
  CHECK(fs::read_symlink(folder / "last") == "step-2");
  CHECK(same(read_checkpoint(folder / "last"), small_checkpoint(2)));
  remove_checkpoint(folder / "step-1");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"last", "step-2"});
  CHECK_THROWS_AS(remove_checkpoint(folder / "step-1"), OutputError);
}

TEST_CASE("every flipped byte and every truncation of a checkpoint is found") {
  check_all_damage_is_found(small_checkpoint(1));
}

TEST_CASE("every flipped byte and every truncation of a checkpoint of 16 KiB is found", "[slow]") {
  CHECK(check_all_damage_is_found(large_checkpoint()) > 16'000);  // 33,000 times hashing 16 KB
}

TEST_CASE("a damaged checkpoint is named with what is wrong") {
  const TempFolder folder;
  const auto checkpoint = folder / "c";
  const auto refused = [&](const std::string& text) {
    CHECK_THROWS_WITH(read_checkpoint(checkpoint), ContainsSubstring(text));
  };
  refused("there is no checkpoint '" + checkpoint.string() + "'");
  fs::create_directory(checkpoint);
  refused("it has no manifest.json");
  write_checkpoint(checkpoint, small_checkpoint(1));
  const auto manifest = read_file(checkpoint / "manifest.json");
  const auto with = [&](const std::string& text) { write_file(checkpoint / "manifest.json", text); };
  with("{\"format\": 2}");
  refused("has format 2, this version of lockstep reads 1");
  with(std::string(80'000, '['));
  refused("manifest.json is not as it was written");
  with(std::string(2 << 20, ' '));
  refused("it has more than 1048576 bytes");
  with("{\n  \"files\": {\n    \"../c\": {}\n  },\n  \"format\": 1\n}\n");
  refused("'../c' is no name of a file in it");
  with("{\n  \"files\": {\n    \"x\": {}\n  },\n  \"format\": 1\n}\n");
  refused("x is missing");
  with(manifest);
  write_file(checkpoint / "state.json", "abc");
  refused("state.json has 3 bytes, the manifest says 13");
  write_file(checkpoint / "state.json", "{\"steps\": 2}\n");
  refused("the SHA-256 of state.json is not the manifest's");
}

TEST_CASE("what killed writers have left is removed by the next one; a living writer's folder stays") {
  const TempFolder folder;
  const auto living = create_temporary_folder(folder.path());
  fs::path dead;
  {
    const auto temporary = create_temporary_folder(folder.path());
    dead = temporary.path;
    write_file(dead / "model.safetensors", "half");
    ::close(temporary.fd);
  }
  write_checkpoint(folder / "c", small_checkpoint(1));
  CHECK_FALSE(fs::exists(dead));
  CHECK(fs::exists(living.path));
  ::close(living.fd);
}

TEST_CASE("a checkpoint that cannot be written leaves nothing, and the one before as it was") {
  const TempFolder folder;
  CHECK_THROWS_AS(write_checkpoint(folder / "none/c", small_checkpoint(1)), OutputError);
  write_checkpoint(folder / "c", small_checkpoint(1));

  auto bad = small_checkpoint(2);
  bad.tensors["z.safetensors"] = {.tensors = {{"undefined", torch::Tensor()}}, .metadata = {}};
  CHECK_THROWS_AS(write_checkpoint(folder / "c", bad), OutputError);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"c"});
  CHECK(same(read_checkpoint(folder / "c"), small_checkpoint(1)));

  {
    const FileLimit limit(200);
    const auto file = (folder / "c/model.safetensors").string();
    CHECK_THROWS_WITH(write_checkpoint(folder / "c", small_checkpoint(2)),
                      ContainsSubstring("cannot write '" + file + "': File too large"));
  }
  CHECK(names_in(folder.path()) == std::vector<std::string>{"c"});
  CHECK(same(read_checkpoint(folder / "c"), small_checkpoint(1)));

  write_file(folder / "taken", "a file");
  CHECK_THROWS_WITH(write_checkpoint(folder / "taken", small_checkpoint(1)),
                    ContainsSubstring("cannot write the checkpoint '" + (folder / "taken").string() + "'"));
  CHECK(read_file(folder / "taken") == "a file");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"c", "taken"});
}

TEST_CASE("a folder of other files is not replaced; a checkpoint that has lost its manifest is") {
  const TempFolder folder;
  fs::create_directories(folder / "thesis/chapters");
  write_file(folder / "thesis/notes.txt", "precious");
  CHECK_THROWS_WITH(
      write_checkpoint(folder / "thesis", small_checkpoint(1)),
      "'" + (folder / "thesis").string() + "' exists and has files that are not of a checkpoint");
  CHECK(names_in(folder / "thesis") == std::vector<std::string>{"chapters", "notes.txt"});

  fs::create_directory(folder / "site");  // web pages have a manifest, too
  write_file(folder / "site/manifest.json", "{\"name\": \"site\"}");
  write_file(folder / "site/index.html", "precious");
  CHECK_THROWS_AS(write_checkpoint(folder / "site", small_checkpoint(1)), OutputError);
  CHECK(names_in(folder / "site") == std::vector<std::string>{"index.html", "manifest.json"});

  auto with_log = small_checkpoint(1);
  with_log.texts["log.txt"] = "of this checkpoint";
  for (int repeat = 0; repeat < 2; ++repeat) write_checkpoint(folder / "logged", with_log);
  CHECK(same(read_checkpoint(folder / "logged"), with_log));
  write_file(folder / "logged/notes.txt", "precious");
  CHECK_THROWS_AS(write_checkpoint(folder / "logged", with_log), OutputError);
  CHECK(read_file(folder / "logged/notes.txt") == "precious");

  write_checkpoint(folder / "c", small_checkpoint(1));
  fs::remove(folder / "c/manifest.json");
  write_checkpoint(folder / "c", small_checkpoint(2));
  CHECK(same(read_checkpoint(folder / "c"), small_checkpoint(2)));
  fs::create_directory(folder / "empty");
  write_checkpoint(folder / "empty", small_checkpoint(3));
  CHECK(same(read_checkpoint(folder / "empty"), small_checkpoint(3)));
}

TEST_CASE("a checkpoint's path may end with a slash") {
  const TempFolder folder;
  for (const int seed : {1, 2}) {
    write_checkpoint(folder / "c/", small_checkpoint(seed));
    CHECK(same(read_checkpoint(folder / "c"), small_checkpoint(seed)));
  }
  link_checkpoint(folder / "c/", "last");
  CHECK(same(read_checkpoint(folder / "last"), small_checkpoint(2)));
  remove_checkpoint(folder / "c/");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"last"});
}

TEST_CASE("names that are no names of a checkpoint's files are refused, and nothing is written") {
  const TempFolder folder;
  for (const auto* name :
       {"", "../escape.json", "a/b.json", ".hidden", "manifest.json", "m.safetensors", "gr\xfc.json"}) {
    CHECK_THROWS_AS(write_checkpoint(folder / "c", {.tensors = {}, .texts = {{name, "{}"}}}), UsageError);
  }
  for (const auto* name : {"model", "../m.safetensors"}) {
    CHECK_THROWS_AS(write_checkpoint(folder / "c", {.tensors = {{name, {}}}, .texts = {}}), UsageError);
  }
  CHECK(names_in(folder.path()).empty());
}
