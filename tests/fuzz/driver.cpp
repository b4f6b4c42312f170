// main() of a fuzzer for g++, which has no libFuzzer: runs a harness on the corpus, then on mutated inputs.
//
//   X_fuzz [--iterations N | --seconds S] [--seed N] [--dictionary FILE] [--failure FILE] FOLDER   fuzzes
//   X_fuzz FILE...                                                             runs these inputs, for a
//   debugger
//
// LOCKSTEP_FUZZ_SECONDS=S is --seconds S with a new seed each time, which is printed. The inputs run in a
// child process. If it ends early (a sanitizer, a signal, too much memory or time), the input is written to
// --failure. A corpus file NAME.repeat describes a large input by lines "TIMES TEXT".
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <unordered_set>
#include <vector>

#include <lockstep/tests/fuzz/harness.h>
#include <lockstep/tests/fuzz/mutate.h>

// From AddressSanitizer; absent in other builds.
extern "C" __attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(
    void (*)(const volatile void*, size_t), void (*)(const volatile void*));

namespace lockstep::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = 1 << 20;        // per input
constexpr size_t kMostSeedBytes = 16 << 10;   // larger corpus inputs are run but seldom mutated
constexpr size_t kMostAllocated = 512 << 20;  // at once, for any input
constexpr unsigned kMostSeconds = 120;        // for any input
constexpr size_t kMostFound = 2000;           // inputs kept in memory because their outcome was new

struct Options {
  std::optional<double> seconds;
  uint64_t iterations = 20'000;
  uint64_t seed = 1;
  fs::path dictionary, failure = "failure";
  std::vector<fs::path> inputs;
};

// Shared memory in which the child shows its parent the current input.
struct Current {
  uint64_t executions;
  size_t size;
  uint8_t bytes[kMostBytes];
};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return bytes;
}

std::string read_input(const fs::path& path) {
  const auto text = read_file(path);
  if (path.extension() != ".repeat") return text;
  std::string input;
  std::istringstream lines(text);
  size_t times = 0;
  for (std::string part; lines >> times && lines.get() && std::getline(lines, part);) {
    for (size_t i = 0; i < times; ++i) input += part;
  }
  return input;
}

void refuse_huge(const volatile void*, size_t size) {
  require(size <= kMostAllocated, "no input takes 512 MiB at once");
}
void ignore_free(const volatile void*) {}

// An error message without quotes from the input, so that each place in the code gives one.
std::string kind_of(const std::string& outcome) {
  std::string kind;
  bool quoted = false;
  for (const char c : outcome) {
    if (c == '\'' || c == '"') quoted = !quoted;
    if (!quoted && std::isalpha(static_cast<unsigned char>(c))) kind += c;
  }
  return kind.substr(0, 100);
}

class Fuzzer {
 public:
  Fuzzer(const Options& options, Current& current)
      : options_(options),
        current_(current),
        mutator_(options.seed,
                 options.dictionary.empty() ? std::vector<std::string>{}
                                            : parse_dictionary(read_file(options.dictionary)),
                 kMostBytes) {}

  void run() {
    if (__sanitizer_install_malloc_and_free_hooks)
      __sanitizer_install_malloc_and_free_hooks(refuse_huge, ignore_free);
    std::vector<fs::path> paths;
    for (const auto& folder : options_.inputs) paths.insert(paths.end(), fs::directory_iterator(folder), {});
    std::ranges::sort(paths);
    for (const auto& path : paths) keep(read_input(path));
    if (large_.empty() && small_.empty()) throw std::runtime_error("the corpus is empty");
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    for (uint64_t i = 0; options_.seconds ? elapsed() < *options_.seconds : i < options_.iterations; ++i) {
      auto input = mutator_.change(some(), some());
      if (execute(input) && found_ < kMostFound) {
        ++found_;
        small_.push_back(std::move(input));
      }
    }
    std::printf("%zu kept inputs, %llu executions in %.1f s with seed %llu, %zu kinds of outcome\n",
                paths.size(), static_cast<unsigned long long>(current_.executions), elapsed(),
                static_cast<unsigned long long>(options_.seed), kinds_.size());
  }

 private:
  void keep(std::string input) {
    if (input.size() > kMostBytes) throw std::runtime_error("a kept input is larger than 1 MiB");
    execute(input);
    (input.size() > kMostSeedBytes ? large_ : small_).push_back(std::move(input));
  }

  const std::string& some() {
    const bool large = small_.empty() || (!large_.empty() && mutator_.below(500) == 0);
    const auto& inputs = large ? large_ : small_;
    return inputs[mutator_.below(inputs.size())];
  }

  // Returns true if the outcome is new.
  bool execute(const std::string& input) {
    std::memcpy(current_.bytes, input.data(), input.size());
    current_.size = input.size();
    ++current_.executions;
    alarm(kMostSeconds);
    last_outcome.clear();
    // A heap block of exactly this size, so that AddressSanitizer sees reads beyond its end.
    const std::vector<uint8_t> block(input.begin(), input.end());
    LLVMFuzzerTestOneInput(block.data(), block.size());
    alarm(0);
    return input.size() <= kMostSeedBytes && kinds_.insert(kind_of(last_outcome)).second;
  }

  const Options& options_;
  Current& current_;
  Mutator mutator_;
  std::vector<std::string> small_, large_;
  size_t found_ = 0;
  std::unordered_set<std::string> kinds_;
};

Options parse(const std::vector<std::string>& words) {
  Options options;
  if (const char* seconds = std::getenv("LOCKSTEP_FUZZ_SECONDS"); seconds != nullptr && *seconds != '\0') {
    options.seconds = std::stod(seconds);
    options.seed = std::random_device()();
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const auto value = [&] {
      return ++i < words.size() ? words[i] : throw std::runtime_error(words[i - 1] + " needs a value");
    };
    if (words[i] == "--iterations") {
      options.iterations = std::stoull(value());
    } else if (words[i] == "--seconds") {
      options.seconds = std::stod(value());
    } else if (words[i] == "--seed") {
      options.seed = std::stoull(value());
    } else if (words[i] == "--dictionary") {
      options.dictionary = value();
    } else if (words[i] == "--failure") {
      options.failure = value();
    } else {
      options.inputs.emplace_back(words[i]);
    }
  }
  if (options.inputs.empty()) throw std::runtime_error("name a folder of inputs, or files");
  return options;
}

int run_files(const std::vector<fs::path>& files) {
  for (const auto& file : files) {
    const auto input = read_input(file);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    std::printf("%s: %s\n", file.c_str(), last_outcome.c_str());
  }
  return 0;
}

int fuzz(const Options& options) {
  auto* shared = mmap(nullptr, sizeof(Current), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::runtime_error("mmap");
  auto& current = *static_cast<Current*>(shared);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) {
    Fuzzer(options, current).run();
    std::exit(0);  // LeakSanitizer runs at exit
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
  std::ofstream(options.failure, std::ios::binary)
      .write(reinterpret_cast<const char*>(current.bytes), static_cast<std::streamsize>(current.size));
  std::printf("FAILED (%s %d) at execution %llu with seed %llu; its input: %s\n",
              WIFSIGNALED(status) ? "signal" : "exit code",
              WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
              static_cast<unsigned long long>(current.executions),
              static_cast<unsigned long long>(options.seed), fs::absolute(options.failure).c_str());
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    std::printf("it took more than %u s\n", kMostSeconds);
  return 1;
}

}  // namespace
}  // namespace lockstep::fuzz

int main(int argc, char** argv) {
  using namespace lockstep::fuzz;
  try {
    const auto options = parse({argv + 1, argv + argc});
    return std::filesystem::is_directory(options.inputs.front()) ? fuzz(options) : run_files(options.inputs);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 2;
  }
}
