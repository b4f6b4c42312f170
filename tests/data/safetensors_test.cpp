// Safetensors files, compared with one that Python's safetensors package wrote:
// tests/reference/safetensors_file.py.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include <lockstep/data/safetensors.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/file_limit.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::FileLimit;
using lockstep::testing::files_in;
using lockstep::testing::read_file;
using lockstep::testing::TempFolder;
using lockstep::testing::write_file;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::string kReference = std::string(LOCKSTEP_REFERENCE_DIR) + "/safetensors_file";

// The contents of the JSON file beside the Python file, as contiguous tensors.
std::map<std::string, torch::Tensor> python_tensors() {
  const std::map<std::string, torch::ScalarType> dtypes = {
      {"F64", torch::kFloat64},   {"F32", torch::kFloat32}, {"F16", torch::kFloat16},
      {"BF16", torch::kBFloat16}, {"I64", torch::kInt64},   {"I32", torch::kInt32},
      {"I16", torch::kInt16},     {"I8", torch::kInt8},     {"U8", torch::kUInt8},
      {"BOOL", torch::kBool}};
  std::map<std::string, torch::Tensor> tensors;
  const auto file = json::parse(std::ifstream(kReference + ".json"));
  for (const auto& [name, item] : file.at("tensors").items()) {
    const auto dtype = dtypes.at(item.at("dtype"));
    const auto values = at::isFloatingType(dtype)
                            ? torch::tensor(item.at("values").get<std::vector<double>>(), torch::kFloat64)
                            : torch::tensor(item.at("values").get<std::vector<int64_t>>(), torch::kInt64);
    tensors[name] = values.to(dtype).reshape(item.at("shape").get<std::vector<int64_t>>());
  }
  return tensors;
}

const std::map<std::string, std::string> kPythonMetadata = {
    {"note", "quoted \"text\", a back\\slash,\na new line and \u00fc"}};

// The same tensors in another order, some of them views with other strides, offsets or a lazy negation.
TensorFile python_file() {
  TensorFile file = {{}, kPythonMetadata};
  for (auto& [name, tensor] : python_tensors()) file.tensors.insert(file.tensors.begin(), {name, tensor});
  for (auto& [name, tensor] : file.tensors) {
    if (name == "conv.weight") tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    if (name == "float") tensor = tensor.t().contiguous().t();
    if (name == "double") tensor = at::_neg_view(-tensor);
    if (name == "int64") tensor = torch::stack({tensor, tensor + 1}, 1).select(1, 0);
  }
  return file;
}

bool same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && torch::equal(a, b);
}

template <class ErrorType, class Function>
ErrorType error_of(Function function) {
  try {
    function();
  } catch (const ErrorType& error) {
    return error;
  }
  FAIL("no such error");
  throw;
}

// Returns the message of the WeightsError that loading throws.
std::string failure(const fs::path& path) {
  const auto error = error_of<WeightsError>([&] { load_safetensors(path); });
  CHECK_THAT(error.what(), Catch::Matchers::StartsWith(path.string() + " "));
  CHECK_FALSE(error.hint().empty());
  return error.what();
}

// Returns the OutputError of saving to a path. check_can_save() must throw the same, and neither may leave
// files.
OutputError refusal(const fs::path& path, bool overwrite, const TensorFile& file = {}) {
  const auto saving = error_of<OutputError>([&] { save_safetensors(path, file, overwrite); });
  const auto looking = error_of<OutputError>([&] { check_can_save(path, overwrite); });
  CHECK(saving.exit_code() == ExitCode::kOutput);
  CHECK_THAT(looking.what(), Catch::Matchers::Equals(saving.what()));
  CHECK(looking.hint() == saving.hint());
  return saving;
}

TensorFile numbers(int64_t first, int64_t count) {
  return {{{"x", torch::arange(first, first + count, torch::kInt32)}}, {}};
}

}  // namespace

TEST_CASE("a file of Python's package is read with the same values") {
  const auto expected = python_tensors();
  const auto file = load_safetensors(kReference + ".safetensors");
  CHECK(file.metadata == kPythonMetadata);
  REQUIRE(file.tensors.size() == expected.size());
  for (const auto& [name, tensor] : file.tensors) {
    INFO(name);
    CHECK(same(tensor, expected.at(name)));
    CHECK((tensor.is_cpu() && tensor.is_contiguous() && !tensor.requires_grad()));
  }
  // In order of the data: the widest first, then by name.
  CHECK(file.tensors.front().name == "int64");
  CHECK(file.tensors.back().name == "flags");
  // Values that rounding or a wrong byte order would change.
  CHECK(file.tensors.front().tensor[0].item<int64_t>() == INT64_MIN);
  CHECK(expected.at("int32")[2].item<int>() == 258);
  CHECK(std::signbit(expected.at("float")[1][0].item<float>()));
}

TEST_CASE("the same tensors are saved byte for byte as Python's package saves them") {
  const TempFolder folder;
  const auto file = python_file();
  REQUIRE(file.tensors.size() == 14);
  save_safetensors(folder / "saved", file, /*overwrite=*/false);
  CHECK(read_file(folder / "saved") == read_file(kReference + ".safetensors"));
}

// Run by safetensors_python.sh.
TEST_CASE("a file for Python", "[.]") {
  const char* path = std::getenv("LOCKSTEP_TEST_FILE");
  REQUIRE(path != nullptr);
  save_safetensors(path, python_file(), /*overwrite=*/false);
}

// Run by safetensors_both_ways.sh.
TEST_CASE("files of Python are saved again", "[.]") {
  const char* folder = std::getenv("LOCKSTEP_TEST_FOLDER");
  REQUIRE(folder != nullptr);
  size_t read = 0, refused = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    auto name = entry.path().filename().string();
    INFO(name);
    if (name.starts_with("refused_")) {
      CHECK_THAT(failure(entry.path()), ContainsSubstring("has dtype"));
      ++refused;
    } else if (name.starts_with("python_")) {
      const auto file = load_safetensors(entry.path());
      save_safetensors(fs::path(folder) / name.replace(0, 6, "lockstep"), file, /*overwrite=*/false);
      ++read;
    }
  }
  CHECK(read == 60);
  CHECK(refused == 4);
}

TEST_CASE("tensors of any strides keep their values") {
  const TempFolder folder;
  const auto base = torch::arange(2 * 3 * 4 * 5, torch::kFloat32).view({2, 3, 4, 5});
  const std::vector<NamedTensor> tensors = {
      {"0 permuted", base.permute({3, 1, 0, 2})},
      {"1 channels last", base.contiguous(at::MemoryFormat::ChannelsLast)},
      {"2 expanded", base[0][0][0].expand({4, 5})},
      {"3 strided", base.slice(3, 1, 5, 2)},
      {"4 part", base.flatten().narrow(0, 7, 11)},
      {"5 needs a gradient", (base * 2).requires_grad_()},
      {"6 negated", at::_neg_view(base)},
      {"7 scalar", base[1][2][3][4]},
      {"8 empty", base.narrow(1, 0, 0)}};
  save_safetensors(folder / "file", {tensors, {}}, false);
  const auto found = load_safetensors(folder / "file");
  REQUIRE(found.tensors.size() == tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    INFO(tensors[i].name);
    CHECK(found.tensors[i].name == tensors[i].name);
    CHECK(same(found.tensors[i].tensor, tensors[i].tensor.detach()));
  }
}

TEST_CASE("tensors of a GPU are saved", "[cuda]") {
  const TempFolder folder;
  const auto values = torch::arange(24, torch::kBFloat16).view({2, 3, 4});
  const auto on_gpu = values.to(torch::kCUDA);
  save_safetensors(folder / "file", {{{"a", on_gpu}, {"b", on_gpu.permute({2, 0, 1})}}, {}}, false);
  const auto found = load_safetensors(folder / "file");
  CHECK(same(found.tensors.at(0).tensor, values));
  CHECK(same(found.tensors.at(1).tensor, values.permute({2, 0, 1})));
}

TEST_CASE("a file cut or lengthened anywhere is an error") {
  const TempFolder folder;
  const auto whole = read_file(kReference + ".safetensors");
  write_file(folder / "file", whole + '\0');
  CHECK_THAT(failure(folder / "file"), ContainsSubstring("has 233 bytes of data, its tensors take 232"));
  fs::resize_file(folder / "file", whole.size());
  CHECK(load_safetensors(folder / "file").tensors.size() == 14);
  for (size_t size = whole.size(); size-- > 0;) {
    INFO(size << " of " << whole.size() << " bytes");
    fs::resize_file(folder / "file", size);
    CHECK_THAT(failure(folder / "file"), ContainsSubstring("truncated"));
  }
}

TEST_CASE("a changed byte before the data is an error or another valid file") {
  const TempFolder folder;
  const auto whole = read_file(kReference + ".safetensors");
  const size_t data = whole.size() - 232;
  write_file(folder / "file", whole);
  std::fstream file(folder / "file", std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](size_t at, int byte) {
    file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte)).flush();
  };
  size_t read = 0, refused = 0;
  for (size_t at = 0; at < data; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      put(at, whole[at] ^ 1 << bit);
      try {
        read += load_safetensors(folder / "file").tensors.size() == 14;
      } catch (const WeightsError&) {
        ++refused;
      }
    }
    put(at, whole[at]);
  }
  REQUIRE(file.good());
  CHECK(read + refused == data * 8);
  CHECK(read > 0);  // for example another letter in a name
}

TEST_CASE("the length of the header is checked against the file and a limit") {
  const TempFolder folder;
  const auto with_length = [&](uint64_t length) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> 8 * i);
    write_file(folder / "file", bytes + "{}");
    return folder / "file";
  };
  CHECK(load_safetensors(with_length(2)).tensors.empty());
  CHECK_THAT(failure(with_length(3)), ContainsSubstring("promises a header of 3 bytes and has 2 more"));
  CHECK_THAT(failure(with_length(100'000'000)),
             ContainsSubstring("header of 100000000 bytes and has 2 more"));
  CHECK_THAT(failure(with_length(100'000'001)),
             ContainsSubstring("100000001 bytes, at most 100000000 were expected"));
  CHECK_THAT(failure(with_length(UINT64_MAX)), ContainsSubstring("18446744073709551615 bytes, at most"));
  CHECK_THAT(failure(with_length(0)), ContainsSubstring("begins with nothing"));
  write_file(folder / "file", "PK\x03\x04 an archive of torch.save");
  CHECK_THAT(failure(folder / "file"), ContainsSubstring("is not a safetensors file"));
}

TEST_CASE("a BOOL that is neither 0 nor 1 is an error") {
  const TempFolder folder;
  auto bytes = read_file(kReference + ".safetensors");
  bytes.back() = 2;
  write_file(folder / "file", bytes);
  CHECK_THAT(failure(folder / "file"), ContainsSubstring("BOOL"));
}

TEST_CASE("a file that cannot be read is an error") {
  const TempFolder folder;
  CHECK_THAT(failure(folder / "nowhere"), ContainsSubstring("No such file"));
  CHECK_THAT(failure(folder.path()), ContainsSubstring("not a regular file"));
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(failure(folder / "pipe"), ContainsSubstring("not a regular file"));
  CHECK_THAT(failure("/dev/zero"), ContainsSubstring("not a regular file"));
  // The system reports 4096 bytes and returns 2, as for a file that is cut after it was opened.
  const fs::path cut = "/sys/kernel/fscaps";
  if (fs::exists(cut)) CHECK_THAT(failure(cut), ContainsSubstring("to 2 bytes while it was read"));
}

TEST_CASE("paths that cannot be written are refused before and while saving") {
  const TempFolder folder;
  write_file(folder / "file", "old");
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  fs::create_symlink(folder / "nowhere", folder / "link");
  for (const bool overwrite : {false, true}) {
    CHECK_THAT(refusal(folder.path(), overwrite).what(), ContainsSubstring("it is a folder"));
    CHECK_THAT(refusal(folder / "none/a", overwrite).what(), ContainsSubstring("none' does not exist"));
    CHECK_THAT(refusal(folder / "none/a", overwrite).hint(), ContainsSubstring("mkdir -p"));
    CHECK_THAT(refusal(folder / "file/a", overwrite).what(), ContainsSubstring("Not a directory"));
    CHECK_THAT(refusal(folder / "none/", overwrite).what(), ContainsSubstring("names no file"));
    CHECK_THAT(refusal("", overwrite).what(), ContainsSubstring("names no file"));
    CHECK_THAT(refusal(folder / std::string(300, 'a'), overwrite).what(), ContainsSubstring("name too long"));
    CHECK_THAT(refusal(folder / "pipe", overwrite).what(), ContainsSubstring("not a regular file"));
    CHECK_THAT(refusal("/dev/null", overwrite).what(), ContainsSubstring("not a regular file"));
    CHECK_THAT(refusal(folder / "link", overwrite).what(), ContainsSubstring("No such file"));
  }
  CHECK_THAT(refusal(folder / "file", false).what(), ContainsSubstring("/file' already exists"));
  CHECK_THAT(refusal(folder / "file", false).hint(), ContainsSubstring("overwrite = true"));
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
  const std::string file = refusal(folder / "file", true).what();
  const std::string closed = refusal(folder / "closed/file", true).what();
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
  const auto here = fs::current_path();
  fs::current_path(folder.path());
  check_can_save("new", false);  // a name without a folder: in the working directory
  save_safetensors("new", numbers(0, 3), false);
  fs::current_path(here);
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
      const auto error =
          error_of<OutputError>([&] { save_safetensors(folder / name, numbers(0, 1000), true); });
      CHECK_THAT(error.what(), ContainsSubstring(name) && ContainsSubstring("File too large"));
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
  const auto message = [&](const NamedTensor& named) {
    const auto save = [&] { save_safetensors(folder / "file", {{{"x", x}, named}, {}}, true); };
    return std::string(error_of<OutputError>(save).what());
  };
  CHECK_THAT(message({"y", {}}), ContainsSubstring("tensor 'y': it is undefined"));
  CHECK_THAT(message({"y", x.to_sparse()}), ContainsSubstring("tensor 'y': it is not a dense tensor"));
  CHECK_THAT(message({"y", x.to(torch::kMeta)}), ContainsSubstring("tensor 'y': it is not a dense tensor"));
  CHECK_THAT(message({"y", x.to(torch::kComplexFloat)}), ContainsSubstring("no dtype ComplexFloat"));
  CHECK_THAT(message({"x", x}), ContainsSubstring("tensor 'x': another one has the same name"));
  CHECK_THAT(message({"__metadata__", x}), ContainsSubstring("__metadata__"));
  CHECK(read_file(folder / "file") == old);
  CHECK(files_in(folder) == 1);
}
