// Parts of `lockstep launch` that start nothing.
#include <fmt/format.h>
#include <lockstep/tests/catch.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <lockstep/app/cli/launched_words.h>
#include <lockstep/app/launch/cores.h>
#include <lockstep/app/launch/process_output.h>
#include <lockstep/app/launch/variables.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using lockstep::testing::read_file;
using lockstep::testing::TempFolder;
using lockstep::testing::write_file;
using Cores = std::vector<int>;
using Strings = std::vector<std::string>;

namespace {

CommandLine split_words(const Strings& words) {
  std::vector<const char*> argv = {"lockstep"};
  for (const auto& word : words) argv.push_back(word.c_str());
  return split_command_line(static_cast<int>(argv.size()), argv.data());
}

// The kernel's folder of CPUs; core i is on socket sockets[i].
void make_cores(const TempFolder& folder, const Strings& sockets) {
  for (size_t core = 0; core < sockets.size(); ++core) {
    const auto topology = folder / ("cpu" + std::to_string(core)) / "topology";
    std::filesystem::create_directories(topology);
    write_file(topology / "physical_package_id", sockets[core] + "\n");
  }
}

}  // namespace

TEST_CASE("what follows -- of launch is set apart") {
  const auto line = split_words({"launch", "-n", "2", "--", "train", "--epochs", "3", "--", "[a]", ""});
  CHECK(line.words == Strings{"launch", "-n", "2"});
  CHECK(line.launched == Strings{"train", "--epochs", "3", "--", "[a]", ""});
  CHECK(split_words({"--color", "never", "launch", "--", "x"}).launched == Strings{"x"});
  CHECK(split_words({"--color=never", "launch", "--", "x"}).launched == Strings{"x"});
}

TEST_CASE("other command lines stay whole") {
  for (const Strings& words : std::vector<Strings>{{},
                                                   {"launch"},
                                                   {"launch", "-n", "2"},
                                                   {"launch", "--"},
                                                   {"train", "--", "launch"},
                                                   {"plot", "launch", "--", "x"},
                                                   {"--color", "launch", "--", "x"},
                                                   {"--color"},
                                                   {"help", "launch", "--", "x"},
                                                   {"--", "launch", "x"}}) {
    const auto line = split_words(words);
    const bool only_dashes = words == Strings{"launch", "--"};
    CHECK(line.words == (only_dashes ? Strings{"launch"} : words));
    CHECK(line.launched.empty());
  }
  CHECK(split_command_line(0, nullptr).words.empty());
}

TEST_CASE("cores are dealt socket by socket") {
  const TempFolder folder;
  make_cores(folder, {"0", "1", "0", "1", "-1", "nonsense"});
  const Cores all = {0, 1, 2, 3, 4, 5, 6};
  const auto ordered = by_socket(all, folder.path());
  CHECK(ordered == Cores{0, 2, 4, 5, 6, 1, 3});  // 6: the kernel says nothing about it
  CHECK(automatic_processes(/*gpus=*/0, all, folder.path()) == 2);
  CHECK(automatic_processes(/*gpus=*/0, {1, 3}, folder.path()) == 1);
  CHECK(automatic_processes(/*gpus=*/3, {1, 3}, folder.path()) == 3);
  CHECK(by_socket({3, 1}, folder.path()) == Cores{3, 1});
}

TEST_CASE("every process gets as many cores, or no choice") {
  const Cores five = {7, 3, 9, 1, 4};
  CHECK(cores_of_process(five, 0, 2) == Cores{7, 3});
  CHECK(cores_of_process(five, 1, 2) == Cores{9, 1});
  CHECK(cores_of_process(five, 0, 1) == five);
  CHECK(cores_of_process(five, 4, 5) == Cores{4});
  CHECK(cores_of_process(five, 0, 6).empty());
}

TEST_CASE("the last lines of a file") {
  const TempFolder folder;
  const auto file = folder / "output";
  CHECK(last_lines(file, 3).empty());
  write_file(file, "");
  CHECK(last_lines(file, 3).empty());
  write_file(file, "a\nb");
  CHECK(last_lines(file, 3) == Strings{"a", "b"});
  write_file(file, "a\nb\n\nc\nd\n");
  CHECK(last_lines(file, 3) == Strings{"", "c", "d"});
  CHECK(last_lines(file, 0).empty());
  // Only the end of a long file is read: 64 KiB, and of them whole lines.
  write_file(file, fmt::format("{:x<100000}\n{:y<65530}\nend\n", "", ""));
  CHECK(last_lines(file, 3) == Strings{std::string(65'530, 'y'), "end"});
  write_file(file, fmt::format("{:x<100000}\nend\n", ""));
  CHECK(last_lines(file, 3) == Strings{"end"});
}

TEST_CASE("the output's folder is removed unless it is kept") {
  std::filesystem::path folder;
  {
    const ProcessOutput output;
    folder = output.folder();
    const auto fd = output.create(3, 0), again = output.create(3, 2);
    CHECK(fd.get() >= 0);
    CHECK(output.file(3, 0) == folder / "process-3.log");
    CHECK(output.file(3, 2) == folder / "restart-2-process-3.log");
    CHECK(std::filesystem::exists(output.file(3, 2)));
    CHECK_THROWS(output.create(3, 0));
  }
  CHECK_FALSE(std::filesystem::exists(folder));
  {
    ProcessOutput output;
    folder = output.folder();
    output.keep();
  }
  CHECK(std::filesystem::remove_all(folder) == 1);
}

TEST_CASE("random words differ") {
  std::set<std::string> words;
  for (int i = 0; i < 100; ++i) {
    words.insert(random_hex(16));
    CHECK(words.rbegin()->size() == 32);
    CHECK(words.rbegin()->find_first_not_of("0123456789abcdef") == std::string::npos);
  }
  CHECK(words.size() == 100);
}
