// Who is blamed for what the processes have reported.
#include <lockstep/parallel/collectives/gloo/failures/verdict.h>
#include <lockstep/tests/catch.h>

#include <fmt/format.h>

using namespace lockstep;

namespace {

using Blamed = std::vector<int>;

// Process i is on host node<i>, or on node<i / per_host>.
std::vector<Presence> presences(int count, int per_host = 1) {
  std::vector<Presence> all;
  for (int i = 0; i < count; ++i) {
    all.push_back({.host = fmt::format("node{}", i / per_host), .machine = "m", .pid = 100 + i});
  }
  return all;
}

FailureReport waits(int64_t order, const std::string& collective = "allreduce 17 of 25,600 float32") {
  return {.kind = ReportKind::kWaits,
          .order = order,
          .text = "words of Gloo",
          .code = 10,
          .collective = collective,
          .channel = "communicator 0",
          .seconds = 0.24};
}

FailureReport failed(int64_t order, const std::string& name = {}) {
  return {.kind = ReportKind::kError, .order = order, .name = name, .text = "out of memory", .code = 8};
}

FailureReport simply(ReportKind kind) { return {.kind = kind}; }

FailureReports numbered(FailureReports reports) {
  for (size_t i = 0; i < reports.size(); ++i) {
    if (reports[i]) reports[i]->process = static_cast<int>(i);
  }
  return reports;
}

Verdict judged(const FailureReports& reports, const StoreStatus& store = {}) {
  return judge(numbered(reports), presences(static_cast<int>(reports.size())), store);
}

constexpr const char* kWaited = "; process 0 waited for allreduce 17 of 25,600 float32 for 0.2 s";

}  // namespace

TEST_CASE("the first error of a process's own is to blame, whoever is silent or waits") {
  const auto first = judged({waits(0), failed(2), std::nullopt, failed(1, "rank 4 (process 3)")});
  CHECK(first.blamed == Blamed{3});
  CHECK(first.text == "rank 4 (process 3) failed first: out of memory");
  CHECK(first.hint == "it ended with code 8: see its own message");
  CHECK(judged({failed(5), waits(0), simply(ReportKind::kLeft)}).text ==
        "process 0 failed first: out of memory");
  CHECK(judged({std::nullopt, failed(0)}, {.answers = false}).blamed == Blamed{1});
  auto of_process_0 = failed(1), earlier = failed(0);
  of_process_0.code = earlier.code = 7;
  CHECK(judged({of_process_0, earlier}).blamed == Blamed{0});
}

TEST_CASE("the launcher and the processes blame the first of the worst kind of end") {
  CHECK(kind_of_end(0) == ReportKind::kLeft);
  CHECK(kind_of_end(10) == ReportKind::kWaits);
  for (const int code : {1, 2, 7, 137}) CHECK(kind_of_end(code) == ReportKind::kError);
  const auto blamed = [](const FailureReports& reports) {
    const auto all = numbered(reports);
    const auto* worst = most_to_blame(all);
    return worst ? worst->process : -1;
  };
  const auto ended = [](int64_t order, int code) {
    return FailureReport{.kind = kind_of_end(code), .order = order, .code = code};
  };
  CHECK(blamed({std::nullopt, std::nullopt}) == -1);
  CHECK(blamed({ended(0, 10), std::nullopt, ended(1, 10)}) == 0);
  CHECK(blamed({ended(2, 10), std::nullopt, ended(1, 10)}) == 2);
  CHECK(blamed({ended(0, 10), ended(1, 0), ended(2, 10)}) == 1);
  CHECK(blamed({ended(0, 0), ended(2, 3), ended(1, 10)}) == 1);
  CHECK(blamed({ended(2, 3), ended(1, 8), ended(0, 10)}) == 1);
  for (const int code : {2, 7}) {  // process 0 says it for all
    CHECK(blamed({ended(2, code), ended(1, code), ended(0, 10)}) == 0);
    CHECK(blamed({ended(2, 3), ended(1, code)}) == 1);
    CHECK(blamed({std::nullopt, ended(1, code)}) == 1);
  }
  CHECK(blamed({ended(2, 3), ended(1, 3)}) == 1);
  CHECK(is_certain(ended(0, 3), {std::nullopt, ended(0, 3)}));
  CHECK_FALSE(is_certain(ended(0, 7), {std::nullopt, ended(0, 7)}));  // process 0 may say it for all
  CHECK(is_certain(ended(0, 7), {ended(1, 10), ended(0, 7)}));
  CHECK_FALSE(is_certain(ended(0, 10), {std::nullopt, ended(0, 10)}));
}

TEST_CASE(
    "a silent process is to blame, else the store's host, one that has left, or one that takes no part") {
  const auto left = simply(ReportKind::kLeft), busy = simply(ReportKind::kBusy);
  const FailureReports host_left{left, waits(0), std::nullopt};
  const StoreStatus of_process{.answers = false, .place = "10.0.0.1:29500"};
  const StoreStatus of_launcher{.answers = false, .of_launcher = true, .place = "10.0.0.1:29500"};
  const std::string process_1_waited = "; process 1 waited for allreduce 17 of 25,600 float32 for 0.2 s";
  struct Case {
    FailureReports reports;
    Blamed blamed;
    std::string text;
    StoreStatus store = {};
  };
  const Case cases[] = {
      {{waits(1), waits(0, "allreduce 16 of 5 int64"), std::nullopt},
       {2},
       "process 2 of 3 (node2, pid 102) does not answer: it ended or hangs; process 1 waited for allreduce "
       "16 of "
       "5 int64 for 0.2 s"},
      {{std::nullopt, waits(0), busy}, {0}, "process 0 of 3 (node0, pid 100) does not answer"},
      {{waits(0), std::nullopt, left, std::nullopt},  // not those that left on its account
       {1, 3},
       std::string(
           "processes 1 and 3 of 4 (node1, pid 101; node3, pid 103) do not answer: they ended or hang") +
           kWaited},
      // A store that does not answer takes its host along.
      {{std::nullopt, waits(0), std::nullopt},
       {0},
       "process 0 of 3 (node0, pid 100) does not answer, nor does the store that it serves: it ended or "
       "hangs" +
           process_1_waited,
       of_process},
      {{waits(0), std::nullopt},
       {},
       std::string("the launcher's store at 10.0.0.1:29500 does not answer") + kWaited,
       of_launcher},
      {{waits(0), left, busy},
       {1},
       std::string("process 1 of 3 (node1, pid 101) left before the others") + kWaited},
      {{waits(0), waits(1), busy},
       {2},
       std::string("process 2 of 3 (node2, pid 102) answers but takes no part: it still computes, or hangs") +
           kWaited},
      {{waits(0), busy, busy},
       {1, 2},
       "processes 1 and 2 of 3 (node1, pid 101; node2, pid 102) answer but take no part: they still compute, "
       "or hang"},
      // A store's host that was done has left: it does not hang.
      {host_left,
       {0},
       "process 0 of 3 (node0, pid 100) left before the others" + process_1_waited,
       of_process},
      {host_left, {}, "the launcher's store at 10.0.0.1:29500", of_launcher},
      // A process that does not know its collective says nothing of it.
      {{waits(0, ""), std::nullopt},
       {1},
       "process 1 of 2 (node1, pid 101) does not answer: it ended or hangs"},
      {{waits(0, ""), waits(1), std::nullopt},
       {2},
       "process 2 of 3 (node2, pid 102) does not answer: it ended or hangs" + process_1_waited}};
  for (const auto& [reports, blamed, text, store] : cases) {
    const auto found = judged(reports, store);
    CHECK(found.blamed == blamed);
    CHECK_THAT(found.text, Catch::Matchers::StartsWith(text));
  }
  CHECK(judged({waits(0, ""), std::nullopt}).text.ends_with("it ended or hangs"));
  CHECK(judged({waits(0), std::nullopt}).hint.find("use a longer timeout") != std::string::npos);
  FailureReports many(8);
  many[0] = waits(0);
  many[1] = waits(1);
  CHECK(judge(many, presences(8, 4), {}).text ==
        std::string("processes 2, 3, 4, 5, 6 and 7 of 8 (node0, node1) do not answer: they ended or hang") +
            kWaited);
}

TEST_CASE("if all wait, nobody is to blame: for different collectives, each other, or lost connections") {
  const auto differ = judged({waits(0), waits(1, "broadcast 17 from process 0 of 3 float32")});
  CHECK(differ.blamed.empty());
  CHECK(differ.text ==
        "the processes wait for different collectives: process 0 for allreduce 17 of 25,600 float32, process "
        "1 for broadcast 17 from process 0 of 3 float32");
  CHECK(
      differ.hint ==
      "all processes make the same calls in the same order. If a Trainer makes them, requires_grad may have "
      "changed in one process alone");

  // Other channels, and other places on one channel, are no contradiction. All are told.
  const std::string each_other = "all processes answer, and wait for each other: ";
  auto other_channel = waits(1, "allreduce 17 of 2 int64");
  other_channel.channel = "communicator 1";
  CHECK(judged({waits(0), other_channel, waits(2)}).text ==
        each_other +
            "processes 0 and 2 of 3 for allreduce 17 of 25,600 float32 on communicator 0; process 1 of "
            "3 for allreduce 17 of 2 int64 on communicator 1");
  CHECK(judged({waits(0), other_channel}).hint.find("same order") != std::string::npos);
  auto next = waits(1, "allreduce 18 of 2 int64");
  next.number = 1;
  CHECK(judged({waits(0), next}).text ==
        each_other +
            "process 0 of 2 for allreduce 17 of 25,600 float32 on communicator 0; process 1 of 2 for "
            "allreduce 18 of 2 int64 on communicator 0");
  CHECK(judged({waits(0), waits(1)}).text == each_other + "words of Gloo");

  auto wordless = waits(0);
  wordless.text.clear();
  CHECK(judged({wordless, waits(1)}).text ==
        std::string("all processes answer, and wait for each other") + kWaited);

  auto lost = waits(0);
  for (const std::string words : {"Connection closed by peer [10.0.0.2]:40412", "writev: Broken pipe"}) {
    lost.text = words;
    CHECK(judged({lost, other_channel}).text ==
          "all processes answer, but they have lost their connections: " + words);
    CHECK(judged({lost, waits(1)}).hint == "check the network between the hosts");
  }
  CHECK(judged({simply(ReportKind::kBusy), simply(ReportKind::kBusy)}).blamed.empty());
}
