#include <lockstep/parallel/world/slurm_hosts.h>
#include <lockstep/tests/catch.h>

#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/support/error.h>

using namespace lockstep;

namespace {

using Hosts = std::vector<std::string>;
using Tasks = std::vector<int>;

// The texts between these bars, each of which the call must refuse.
template <typename Read>
void check_refused(const std::string& texts, const Read& read) {
  std::istringstream lines(texts);
  for (std::string text; std::getline(lines, text, '|');) {
    INFO("'" << text << "'");
    CHECK_THROWS_AS(read(text), UsageError);
  }
}

std::string random_text(std::mt19937& random, const std::string& alphabet) {
  std::string text(random() % 16, ' ');
  for (auto& c : text) c = alphabet[random() % alphabet.size()];
  return text;
}

// Reads random texts; returns how many of them were lists.
template <typename Read>
int count_lists(const std::string& alphabet, const Read& read) {
  std::mt19937 random(19);
  int lists = 0;
  for (int repeat = 0; repeat < 20'000; ++repeat) {
    const auto text = random_text(random, alphabet);
    std::string refusal;
    bool is_empty = false;
    try {
      is_empty = read(text).empty();
    } catch (const UsageError& error) {
      refusal = error.message();
    }
    INFO("'" << text << "': " << refusal);
    REQUIRE_FALSE(is_empty);
    REQUIRE((refusal.empty() || refusal.find("'" + text + "' is no list of ") == 0));
    lists += refusal.empty();
  }
  return lists;
}

}  // namespace

TEST_CASE("hosts of SLURM: names, ranges and leading zeros") {
  CHECK(slurm_hosts("n1") == Hosts{"n1"});
  CHECK(slurm_hosts("gpu-a.example_7") == Hosts{"gpu-a.example_7"});
  CHECK(slurm_hosts("b,a,b") == Hosts{"b", "a", "b"});
  CHECK(slurm_hosts("n[1-3,07],gpu-a[01-02]b") == Hosts{"n1", "n2", "n3", "n07", "gpu-a01b", "gpu-a02b"});
  CHECK(slurm_hosts("n[008-011]") == Hosts{"n008", "n009", "n010", "n011"});
  CHECK(slurm_hosts("n[9-11]") == Hosts{"n9", "n10", "n11"});
  CHECK(slurm_hosts("n[09-101]").size() == 93);
  CHECK(slurm_hosts("n[09-101]").back() == "n101");
  CHECK(slurm_hosts("n[0-0]") == Hosts{"n0"});
  CHECK(slurm_hosts("[1-2]") == Hosts{"1", "2"});
}

TEST_CASE("hosts of SLURM: several brackets multiply, the last one fastest") {
  CHECK(slurm_hosts("r[1-2]n[3,5-6]") == Hosts{"r1n3", "r1n5", "r1n6", "r2n3", "r2n5", "r2n6"});
  CHECK(slurm_hosts("a[1][2]c[3],d") == Hosts{"a12c3", "d"});
  CHECK(slurm_hosts("x[1,2],y[3,4]z") == Hosts{"x1", "x2", "y3z", "y4z"});
}

TEST_CASE("what is no list of SLURM's hosts is refused") {
  check_refused(
      "|,|a,|,a|a,,b|n[]|n[,]|n[1,]|n[,1]|n[-]|n[1-]|n[-1]|n[--1]|n[1--2]|n[1-2-3]|n[3-1]|n[1|n1]|n[[1]]|n[1]"
      "]|n]1[|n[1]2,3]|[|]|n[1,[2]]|n[a]|n[1a]|n[ 1]|n[1-2 ]|n[+1]|n 1|n1, n2| "
      "n1|n1\n|n[1.5]|n[2147483648]|n[0-99999999999]|a/b|n:1",
      slurm_hosts);
}

TEST_CASE("up to 65,536 hosts of SLURM, each with a name of up to 255 characters") {
  CHECK(slurm_hosts("n[0-65535]").size() == 65536);
  CHECK(slurm_hosts("n[0-255]m[0-255]").back() == "n255m255");
  CHECK(slurm_hosts("n[0-65534],m").size() == 65536);
  const std::string long_name(255, 'a');
  CHECK(slurm_hosts(long_name) == Hosts{long_name});
  CHECK(slurm_hosts("[" + std::string(254, '0') + "1]").front().size() == 255);
}

TEST_CASE("more hosts of SLURM, or longer names, are refused before they fill the memory") {
  const std::string long_text(100'000, 'a'), zeros(100'000, '0');
  std::string brackets, items = "n[0-65535]";
  for (int i = 0; i < 5000; ++i) brackets += "[0-9]";
  for (int i = 0; i < 5000; ++i) items += ",n[0-65535]";
  for (const auto& text :
       {std::string("n[0-65536]"), std::string("n[0-2147483647]"), std::string("n[0-65535],m"),
        std::string("n[0-65535,0]"), std::string("n[0-255]m[0-256]"),
        std::string("n[0-65535]m[0-65535]o[0-65535]"), std::string(256, 'a'), long_text + "[0-65535]",
        "[" + zeros + "1-65535]", "[" + std::string(255, '0') + "1]", "n[0-65535]" + long_text,
        "n[0-9]" + brackets, items}) {
    INFO(text.substr(0, 40));
    CHECK_THROWS_AS(slurm_hosts(text), UsageError);
  }
}

TEST_CASE("the largest number is a host of SLURM, too") {
  CHECK(slurm_hosts("n[2147483646-2147483647]") == Hosts{"n2147483646", "n2147483647"});
}

TEST_CASE("tasks of SLURM's hosts") {
  CHECK(slurm_tasks("2(x3),1") == Tasks{2, 2, 2, 1});
  CHECK(slurm_tasks("4") == Tasks{4});
  CHECK(slurm_tasks("1,2,3") == Tasks{1, 2, 3});
  CHECK(slurm_tasks("16(x1),8(x2)") == Tasks{16, 8, 8});
  CHECK(slurm_tasks("0,1") == Tasks{0, 1});  // a host of the job without a process of the step
  CHECK(slurm_tasks("1(x65536)").size() == 65536);
}

TEST_CASE("what is no list of SLURM's tasks is refused") {
  check_refused(
      "|,|1,|,1|a|2(x|2(x)|(x3)|(x)|2(3)|2(x3|2x3|2(x3)4|2(x3))|2 (x3)|2(x 3)|2(x-1)|2(x0)|-1|-1(x2)|1.5|1 | "
      "1|[1,2]|1(x2)(x2)|2147483648|1(x65537)|1(x2147483647)|1(x99999999999)|1(x65536),1",
      slurm_tasks);
}

TEST_CASE("any text is a list of SLURM or is refused") {
  const int with_names = count_lists("n0129[]-,", slurm_hosts), with_few = count_lists("n1[]-,", slurm_hosts);
  const int tasks = count_lists("12(x),", slurm_tasks), with_more = count_lists("10)(x- ,", slurm_tasks);
  CHECK(with_names > 100);  // lists, too, not only refusals
  CHECK(with_few > 100);
  CHECK(tasks > 100);
  CHECK(with_more > 100);
}
