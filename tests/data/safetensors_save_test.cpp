// How safetensors files are saved: what is refused, and that a file is replaced whole or not at all.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>

#include <lockstep/data/safetensors.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/data/safetensors_files.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/file_limit.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/in_folder.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

// The OutputError of saving to a path, and its hint. check_can_save() must throw the same, and neither may
// leave files.
std::string refusal(const fs::path& path, bool overwrite) {
  const auto saving = refusal_and_hint<OutputError>([&] { save_safetensors(path, TensorFile{}, overwrite); });
  CHECK(refusal_and_hint<OutputError>([&] { check_can_save(path, overwrite); }) == saving);
  return saving;
}

TensorFile numbers(int64_t first, int64_t count) {
  return {{{"x", torch::arange(first, first + count, torch::kInt32)}}, {}};
}

}  // namespace

TEST_CASE("paths that cannot be written are refused before and while saving") {
  const TempFolder folder;
  write_file(folder / "file", "old");
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  fs::create_symlink(folder / "nowhere", folder / "link");
  const std::pair<fs::path, const char*> cases[] = {{folder.path(), "it is a folder"},
                                                    {folder / "none/a", "none' does not exist"},
                                                    {folder / "none/a", "mkdir -p"},
                                                    {folder / "file/a", "Not a directory"},
                                                    {folder / "none/", "names no file"},
                                                    {"", "names no file"},
                                                    {folder / std::string(300, 'a'), "name too long"},
                                                    {folder / "pipe", "not a regular file"},
                                                    {"/dev/null", "not a regular file"},
                                                    {folder / "link", "No such file"}};
  for (const auto& [path, words] : cases) {
    for (const bool overwrite : {false, true}) CHECK_THAT(refusal(path, overwrite), ContainsSubstring(words));
  }
  CHECK_THAT(refusal(folder / "file", false),
             ContainsSubstring("/file' already exists") && ContainsSubstring("overwrite = true"));
  CHECK(read_file(folder / "file") == "old");
  CHECK(files_in(folder) == 3);
}

TEST_CASE("files and folders that may not be written are refused") {
  const TempFolder folder;
  write_file(folder / "file", "old");
  fs::create_directory(folder / "closed");
  fs::permissions(folder / "file", fs::perms::owner_read | fs::perms::others_read);
  fs::permissions(folder / "closed", fs::perms::owner_read | fs::perms::others_read | fs::perms::others_exec);
  fs::permissions(folder.path(), fs::perms::all);
  const uid_t user = geteuid();
  constexpr uid_t kNobody = 65534;  // root may write everywhere
  if (user == 0 && seteuid(kNobody) != 0) SKIP_CASE("cannot give up the rights of root");
  const auto file = refusal(folder / "file", true), closed = refusal(folder / "closed/file", true);
  CHECK(seteuid(user) == 0);
  CHECK_THAT(file, ContainsSubstring("Permission denied"));
  CHECK_THAT(closed, ContainsSubstring("Permission denied"));
  CHECK(files_in(folder) == 2);
}

TEST_CASE("check_can_save() changes nothing") {
  const TempFolder folder;
  check_can_save(folder / "new", false);
  CHECK(files_in(folder) == 0);
  write_file(folder / "file", "old");
  check_can_save(folder / "file", true);
  CHECK(read_file(folder / "file") == "old");
  CHECK(files_in(folder) == 1);
  const InFolder here(folder.path());
  check_can_save("new", false);  // a name without a folder: in the working directory
  save_safetensors("new", numbers(0, 3), false);
  CHECK(files_in(folder) == 2);
}

TEST_CASE("a file is replaced whole, with its permissions, and a link stays one") {
  const TempFolder folder;
  const mode_t mask = umask(027);
  save_safetensors(folder / "file", numbers(0, 1000), false);
  umask(mask);
  CHECK(fs::status(folder / "file").permissions() == fs::perms{0640});
  fs::permissions(folder / "file", fs::perms{0600});
  fs::create_symlink("file", folder / "link");
  save_safetensors(folder / "link", numbers(7, 2), true);
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(fs::status(folder / "file").permissions() == fs::perms{0600});
  CHECK(torch::equal(load_safetensors(folder / "file").tensors.at(0).tensor,
                     torch::tensor({7, 8}, torch::kInt32)));
  CHECK(files_in(folder) == 2);
}

TEST_CASE("a full disk is an error that leaves the old file and nothing else") {
  const TempFolder folder;
  save_safetensors(folder / "file", numbers(0, 100), false);
  const auto old = read_file(folder / "file");
  for (const rlim_t bytes :
       {0, 50, 300, 3000}) {  // nothing, a part of the header, of the values, most of them
    INFO(bytes);
    for (const char* name : {"file", "new"}) {
      const FileLimit limit(bytes);
      CHECK_THAT(refusal_of<OutputError>([&] { save_safetensors(folder / name, numbers(0, 1000), true); }),
                 ContainsSubstring(name) && ContainsSubstring("File too large"));
    }
    CHECK(read_file(folder / "file") == old);
    CHECK(files_in(folder) == 1);
  }
  save_safetensors(folder / "file", numbers(0, 1000), true);
  CHECK(load_safetensors(folder / "file").tensors.at(0).tensor.numel() == 1000);
}

TEST_CASE("a process that dies while it saves leaves the old file whole") {
  const TempFolder folder;
  save_safetensors(folder / "file", numbers(0, 100), false);
  const auto old = read_file(folder / "file");
  const auto file = numbers(0, 1000);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none = {0, 0}, half = {2000, 2000};
    setrlimit(RLIMIT_CORE, &none);
    std::signal(SIGXFSZ, SIG_DFL);
    setrlimit(RLIMIT_FSIZE, &half);
    save_safetensors(folder / "file", file, true);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ));
  CHECK(read_file(folder / "file") == old);
}

TEST_CASE("a reader sees the old file or the new one while it is replaced") {
  const TempFolder folder;
  const TensorFile files[] = {numbers(0, 100'000), numbers(5, 50'000)};
  save_safetensors(folder / "file", files[0], false);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (size_t i = 1; i <= 20; ++i) save_safetensors(folder / "file", files[i % 2], true);
    done = true;
  });
  size_t torn = 0;
  do {
    try {
      const auto found = load_safetensors(folder / "file").tensors.at(0).tensor;
      torn += !same(found, files[0].tensors[0].tensor) && !same(found, files[1].tensors[0].tensor);
    } catch (const WeightsError&) {
      ++torn;
    }
  } while (!done);
  writer.join();
  CHECK(torn == 0);
}

TEST_CASE("tensors that a file cannot hold are refused before anything is written") {
  const TempFolder folder;
  save_safetensors(folder / "file", numbers(0, 3), false);
  const auto old = read_file(folder / "file");
  const auto x = torch::ones({2});
  const std::pair<NamedTensor, std::string> cases[] = {
      {{"y", {}}, "tensor 'y': it is undefined"},
      {{"y", x.to_sparse()}, "tensor 'y': it is not a dense tensor"},
      {{"y", x.to(torch::kMeta)}, "tensor 'y': it is not a dense tensor"},
      {{"y", x.to(torch::kComplexDouble)}, "tensor 'y': the format has no dtype ComplexDouble"},
      {{"y", x.to(torch::kComplexHalf)}, "tensor 'y': the format has no dtype ComplexHalf"},
      {{"x", x}, "tensor 'x': another one has the same name"},
      {{"__metadata__", x}, "__metadata__"}};
  for (const auto& [named, words] : cases) {
    const TensorFile file{{{"x", x}, named}, {}};
    CHECK_THAT(refusal_of<OutputError>([&] { save_safetensors(folder / "file", file, true); }),
               ContainsSubstring(words));
  }
  CHECK(read_file(folder / "file") == old);
  CHECK(files_in(folder) == 1);
}

TEST_CASE("tensors of every dtype of the format come back with the same bits") {
  const TempFolder folder;
  TensorFile saved;
  for (const auto dtype :
       {torch::kFloat64, torch::kFloat32, torch::kFloat16, torch::kBFloat16, torch::kComplexFloat,
        torch::kFloat8_e4m3fn, torch::kFloat8_e5m2, torch::kFloat8_e4m3fnuz, torch::kFloat8_e5m2fnuz,
        torch::kFloat8_e8m0fnu, torch::kInt64, torch::kInt32, torch::kInt16, torch::kInt8, torch::kUInt64,
        torch::kUInt32, torch::kUInt16, torch::kUInt8, torch::kBool}) {
    for (const int64_t n : {0, 1, 7}) {
      auto bytes = torch::arange(n * static_cast<int64_t>(c10::elementSize(dtype))) * 7 + 129;
      bytes = bytes.remainder(dtype == torch::kBool ? 2 : 251).to(torch::kUInt8);
      saved.tensors.push_back({std::string(c10::toString(dtype)) + std::to_string(n), bytes.view(dtype)});
    }
  }
  save_safetensors(folder / "file", saved, false);
  const auto loaded = load_safetensors(folder / "file");
  REQUIRE(loaded.tensors.size() == saved.tensors.size());
  for (const auto& [name, tensor] : saved.tensors) {
    INFO(name);
    const auto same = std::ranges::find(loaded.tensors, name, &NamedTensor::name);
    REQUIRE(same != loaded.tensors.end());
    CHECK(same->tensor.scalar_type() == tensor.scalar_type());
    CHECK(torch::equal(same->tensor.view(torch::kUInt8), tensor.view(torch::kUInt8)));
  }
}

TEST_CASE("a conjugate is saved with its values") {
  const TempFolder folder;
  const auto z = torch::complex(torch::tensor({1.F, 2.F}), torch::tensor({3.F, -4.F}));
  save_safetensors(folder / "file", {{{"z", torch::conj(z)}}, {}}, false);
  const auto loaded = torch::view_as_real(load_safetensors(folder / "file").tensors.at(0).tensor);
  CHECK(torch::equal(loaded, torch::tensor({{1.F, -3.F}, {2.F, 4.F}})));
}
