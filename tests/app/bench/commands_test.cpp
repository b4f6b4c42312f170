// `lockstep bench` as a process: the figures of a row agree with each other, checks are made, and errors come
// before anything is measured or written.
#include <algorithm>
#include <set>

#include <lockstep/tests/app/bench/bench_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;
using nlohmann::json;

namespace {

const Words kSmallStep = {"--data",    "synthetic", "--limit-train", "512", "--batch-size", "32",
                          "--threads", "1",         "--iterations",  "1",   "--repeat",     "3"};

}  // namespace

TEST_CASE("bench allreduce: one row per size and algorithm, with the figures of nccl-tests") {
  const auto content = bench({"bench", "allreduce", "--devices", "cpux2", "--devices", "cpux3", "--min-bytes",
                              "8", "--max-bytes", "2K", "--repeat", "3", "--iterations", "3"})
                           .json;
  std::set<std::string> seen;
  for (const auto& row : rows_of(content, "allreduce")) {
    INFO(row.dump());
    const double n = row.at("ranks"), seconds = row.at("us").get<double>() * 1e-6, bytes = row.at("bytes");
    CHECK(row.at("count") == bytes / 4);
    CHECK(row.at("algbw").get<double>() == Approx(bytes / seconds / 1e9));
    CHECK(row.at("busbw").get<double>() == Approx(bytes / seconds / 1e9 * 2 * (n - 1) / n));
    CHECK(row.at("wrong") == 0);
    CHECK(row.at("repeats") == 3);
    CHECK(row.at("copy_us").get<double>() > 0);
    seen.insert(row.at("devices").get<std::string>() + " " + row.at("algorithm").get<std::string>() + " " +
                std::to_string(row.at("bytes").get<int>()));
  }
  // 8, 32, 128, 512 and 2048 bytes; root, two_shot and ring; two lists
  CHECK(seen.size() == 5 * 3 * 2);
  CHECK(seen.contains("cpux3 ring 2048"));
  CHECK(content.at("checks").size() == 1);
}

TEST_CASE("bench step: the phases of a step and its arithmetic") {
  const auto content =
      bench(Words{"bench", "step", "--devices", "cpu", "--devices", "cpux2"} + kSmallStep).json;
  const auto steps = rows_of(content, "step");
  REQUIRE(steps.size() == 2);
  for (const auto& row : steps) {
    INFO(row.dump());
    const double seconds = row.at("ms").get<double>() / 1e3;
    CHECK(row.at("batch_size") == 32);
    CHECK(row.at("lr") == .2);  // the recipe's
    CHECK(row.at("images_per_second").get<double>() == Approx(32 / seconds).margin(1));
    CHECK(row.at("gflops").get<double>() == Approx(32 / seconds * 13'258'800 / 1e9));
    CHECK(row.at("mfu").get<double>() ==
          Approx(100 * row.at("gflops").get<double>() / row.at("peak_gflops").get<double>()));
  }
  const auto& settings = content.at("settings");
  CHECK(settings.at("batch_size") == 32);
  CHECK(settings.at("lr") == .2);
  CHECK(settings.at("data") == "synthetic");
  CHECK(settings.at("model") == "lenet");
  CHECK(settings.at("train_rows").get<int>() >= 32);
  double shares = 0;
  const auto phases = rows_of(content, "phases");
  REQUIRE(phases.size() == 2 * 5);
  for (size_t i = 0; i < 5; ++i) shares += phases[i].at("share").get<double>();
  CHECK(shares == Approx(100));
  CHECK(phases[3].at("phase") == "exposed sync");
  const auto layers = rows_of(content, "layers");
  REQUIRE(layers.size() == 2 * 2);
  for (const auto& row : layers) {
    INFO(row.dump());
    // By hand, of 32 rows: 2 x (3 x 2,146,680 - 121,680) of the convolutions, 6 x 103,680 of the linear
    // layers.
    const bool linear = row.at("layer").get<std::string>() == "both linear layers";
    const double seconds = (row.at("forward_ms").get<double>() + row.at("backward_ms").get<double>()) / 1e3;
    CHECK(row.at("gflops").get<double>() == Approx(32. * (linear ? 622'080 : 12'636'720) / seconds / 1e9));
    CHECK(row.at("of_peak").get<double>() > 0);
  }
}

TEST_CASE("bench step: two steps in flight are compared with one") {
  const auto content =
      bench(Words{"bench", "step", "--devices", "cpux2", "--in-flight", "2"} + kSmallStep).json;
  const auto& values = content.at("findings").back().at("values");
  CHECK(values.at("one_ms").get<double>() > 0);
  CHECK(values.at("two_ms").get<double>() > 0);
  CHECK(values.at("two_over_one").get<double>() > 0);
}

TEST_CASE("bench scaling: strong keeps the batch, weak keeps each replica's, both against one replica") {
  const auto content =
      bench(Words{"bench", "scaling", "--devices", "cpux2", "--devices", "cpux4", "--predict", "8"} +
            kSmallStep)
          .json;
  const auto rows = rows_of(content, "scaling");
  REQUIRE(rows.size() == 5);
  CHECK(rows[0].at("devices") == "cpu");
  CHECK(rows[0].at("speedup") == 1);
  const std::vector<std::pair<std::string, int>> expected = {
      {"strong", 32}, {"strong", 32}, {"weak", 64}, {"weak", 128}};
  for (size_t i = 1; i < rows.size(); ++i) {
    INFO(rows[i].dump());
    CHECK(rows[i].at("mode") == expected[i - 1].first);
    CHECK(rows[i].at("batch_size") == expected[i - 1].second);
    CHECK(rows[i].at("lr").get<double>() == Approx(.2 * expected[i - 1].second / 32));
    CHECK(rows[i].at("efficiency").get<double>() ==
          Approx(100 * rows[i].at("speedup").get<double>() / rows[i].at("replicas").get<double>()));
  }
  CHECK(content.at("settings").at("batch_size") == 32);
  CHECK(content.at("settings").at("lr") == .2);
  CHECK(content.at("settings").at("data") == "synthetic");
  // The replicas of each list agree; with strong scaling they also train what one device trains.
  CHECK(content.at("checks").size() == 6);
  const auto predicted = rows_of(content, "prediction");
  CHECK(predicted.size() == 2 * 4);                  // 1, 2, 4 and 8 replicas
  CHECK(predicted[0].at("ms") == rows[0].at("ms"));  // one device alone is measured, not predicted
  CHECK(predicted[0].count("error") == 0);
  const auto& model = content.at("model");
  const int cores = content.at("environment").at("cores").get<int>();
  CHECK(model.at("background_load") ==
        std::min(4, cores) - 1);  // the other replicas of cpux4, if each has a core
  const double compute =
      model.at("fixed_seconds").get<double>() + 4 * model.at("seconds_per_row").get<double>();
  CHECK(predicted[3].at("replicas") == 8);
  CHECK(predicted[3].at("compute_ms").get<double>() == Approx(1e3 * compute));  // 32 / 8 rows per replica
}

// LeNet's 516,272 bytes of weights, by hand. A ring sends 2 (n-1)/n of them, with and without shards.
TEST_CASE("bench scaling --predict --shard: what both schemes send, keep and take up to 1024 replicas") {
  const auto content =
      bench(Words{"bench", "scaling", "--devices", "cpux2", "--scaling", "strong", "--predict", "1024",
                  "--link", "100,1", "--optimizer", "adamw", "--shard", "optimizer"} +
            kSmallStep)
          .json;
  CHECK(content.at("ok") == true);
  const auto rows = rows_of(content, "schemes");
  REQUIRE(rows.size() == 2 * 10);  // 2, 4, ... 1024 replicas
  struct Expected {
    size_t row;
    int replicas;
    double sent, part;  // MB; of the moments
  };
  for (const auto& [row, replicas, sent, part] :
       {Expected{10, 64, 1.0164105, 2 * .008067}, Expected{18, 1024, 1.0315356, 2 * .000505}}) {
    const auto& whole = rows[row];
    const auto& shared = rows[row + 1];
    INFO(whole.dump() << shared.dump());
    CHECK(whole.at("shard") == "none");
    CHECK(shared.at("shard") == "optimizer");
    CHECK(whole.at("held_mb").get<double>() == Approx(4 * .516272));
    CHECK(shared.at("held_mb").get<double>() == Approx(2 * .516272 + part));
    for (const auto& each : {whole, shared}) {
      CHECK(each.at("replicas") == replicas);
      CHECK(each.at("sent_mb").get<double>() == Approx(sent));
      CHECK(each.at("sums_ms").get<double>() + each.at("fetches_ms").get<double>() == Approx(.1 + sent));
    }
    CHECK(whole.at("fetches_ms") == 0);
    CHECK(shared.at("sums_ms").get<double>() == Approx(shared.at("fetches_ms").get<double>()));
    CHECK(whole.at("update_ms").get<double>() > 0);
    CHECK(shared.at("update_ms").get<double>() == Approx(whole.at("update_ms").get<double>() / replicas));
  }
  const auto& found = content.at("findings").back();
  CHECK(found.at("values").at("replicas") == 1024);
  CHECK(found.at("values").at("memory").get<double>() == Approx((2 * .516272 + .00101) / (4 * .516272)));
  // The prediction is of the training that is measured.
  const auto predicted = rows_of(content, "prediction");
  CHECK(predicted.back().at("ms") == rows.back().at("ms"));
}

TEST_CASE("bench scaling: 16 replicas train what one trains; accuracy and shares on demand") {
  const auto content = bench(Words{"bench", "scaling", "--devices", "cpux16", "--scaling", "strong",
                                   "--epochs", "1", "--predict", "2"} +
                             kSmallStep)
                           .json;
  const auto rows = rows_of(content, "scaling");
  REQUIRE(rows.size() == 2);
  CHECK(rows[1].at("devices") == "cpux16");
  CHECK(rows[1].at("accuracy").get<double>() == Approx(rows[0].at("accuracy").get<double>()).margin(.05));
  CHECK(rows_of(content, "prediction").size() == 2);
  CHECK_THAT(content.at("findings").dump(),
             !ContainsSubstring("predicted"));  // what was not measured is not judged
  const auto shared =
      bench(Words{"bench", "scaling", "--devices", "cpux2", "--scaling", "strong", "--split", "auto"} +
            kSmallStep)
          .json;
  const auto& found = shared.at("findings").back();
  // The sentence depends on the machine's speed in this moment; words and values agree all the same.
  CHECK_THAT(found.at("sentence").get<std::string>(), ContainsSubstring("sharing the work"));
  CHECK(found.at("values").at("pays") == (found.at("values").at("gain").get<double>() >= 1.03));
  const auto shares = found.at("values").at("shares").get<std::vector<int64_t>>();
  REQUIRE(shares.size() == 2);
  CHECK(shares[0] + shares[1] == 32);
}

TEST_CASE("fewer than three repetitions give no ratio") {
  const auto content = bench({"bench", "scaling", "--devices", "cpux2", "--scaling", "weak", "--data",
                              "synthetic", "--limit-train", "512", "--batch-size", "32", "--threads", "1",
                              "--iterations", "1", "--repeat", "2"})
                           .json;
  for (const auto& row : rows_of(content, "scaling")) CHECK(row.at("speedup").is_null());
}

TEST_CASE("a benchmark that is stopped keeps its rows") {
  const TempFolder folder;
  const auto file = (folder / "bench.json").string();
  // Would take gigabytes; it is stopped after the first row.
  const auto process =
      program({"bench", "allreduce", "--devices", "cpux2", "--allreduce", "root", "--json", file});
  const auto result = stopped_at("\n  cpux2", SIGINT, process);
  CHECK(result.exit_code == 130);
  CHECK_THAT(result.err, ContainsSubstring("stopped by Ctrl-C"));
  CHECK_THAT(result.out, ContainsSubstring("stopped before the end"));
  const auto content = read_json(file);
  CHECK(content.at("complete") == false);
  CHECK(rows_of(content, "allreduce").size() >= 1);
}

TEST_CASE("bench scaling that is stopped shows the repetitions it has taken") {
  const auto process = program(Words{"bench", "scaling", "--devices", "cpux2", "--scaling", "strong",
                                     "--data", "synthetic", "--limit-train", "512", "--batch-size", "32",
                                     "--threads", "1", "--iterations", "1", "--repeat", "10000"});
  const auto result = stopped_at("# repetitions: 10000", SIGINT, process);
  INFO(result.out << result.err);
  CHECK(result.exit_code == 130);
  CHECK_THAT(result.out, ContainsSubstring("  one     cpu") && ContainsSubstring("  strong  cpux2") &&
                             ContainsSubstring("stopped before the end"));
}

TEST_CASE("bench scaling that is stopped while training for the accuracy shows all times") {
  const auto process =
      program(Words{"bench",     "scaling",   "--devices",     "cpux2", "--scaling",    "strong",
                    "--data",    "synthetic", "--limit-train", "512",   "--batch-size", "32",
                    "--threads", "1",         "--iterations",  "1",     "--repeat",     "3",
                    "--epochs",  "1000000"});
  const auto result = stopped_at("test acc", SIGINT, process);
  INFO(result.out << result.err);
  CHECK(result.exit_code == 130);
  CHECK_THAT(result.out, ContainsSubstring("  one     cpu") && ContainsSubstring("  strong  cpux2") &&
                             ContainsSubstring("stopped before the end"));
}

TEST_CASE("bench step that is stopped keeps the phases of the lists it has measured") {
  const TempFolder folder;
  const auto file = (folder / "bench.json").string();
  const auto process =
      program(Words{"bench",     "step",      "--devices", "cpu",       "--devices", "cpux2",     "--devices",
                    "cpux3",     "--devices", "cpux4",     "--devices", "cpux5",     "--devices", "cpux6",
                    "--devices", "cpux7",     "--devices", "cpux8",     "--json",    file} +
              kSmallStep);
  const auto result = stopped_at("\n  cpu", SIGINT, process);
  INFO(result.out << result.err);
  CHECK(result.exit_code == 130);
  const auto content = read_json(file);
  CHECK(content.at("complete") == false);
  const auto steps = rows_of(content, "step").size();
  CHECK(steps >= 1);
  CHECK(rows_of(content, "phases").size() == 5 * steps);
}
