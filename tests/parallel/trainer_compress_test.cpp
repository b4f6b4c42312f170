// The Trainer in several processes, with gradients that travel as bf16 or fp16.
#include <lockstep/tests/catch.h>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::vector<Layout> kSeveral = {{1, 1}, {2, 1}, {1, 1, 1, 1}};

struct CompressedRun {
  std::vector<double> losses;                      // mean, [step]
  std::vector<std::vector<torch::Tensor>> params;  // [local replica]
  RowSums evaluation;
};

// Ten steps of 32 rows, the replicas compared after each.
std::vector<CompressedRun> train_compressed(const Layout& layout, Compress compress,
                                            SyncMode sync = SyncMode::kOverlapped) {
  TrainerOptions options;
  options.lr = {.lr = .2};
  options.replica.optimizer.momentum = .9;
  options.replica.sync = {.mode = sync, .bucket_bytes = 1000};
  options.check_sync = 1;
  options.compress = compress;
  return in_processes(layout, options, [](int, const TrainerOptions& own) {
    const auto rows = source(std::make_shared<RowSource>(64));
    Trainer trainer(two_layers(), rows, rows, own);
    CompressedRun run;
    run.losses = mean_losses(trainer, 10, first_rows(32));
    run.evaluation = trainer.evaluate();
    const torch::NoGradGuard no_grad;
    for (int local = 0; local < trainer.local_size(); ++local) {
      auto& params = run.params.emplace_back();
      for (const auto& param : trainer.model(local).module->parameters()) params.push_back(param.clone());
    }
    return run;
  });
}

}  // namespace

TEST_CASE("compressed gradients train all replicas alike, and nearly as exact ones do") {
  const auto sync = GENERATE(SyncMode::kParameterwise, SyncMode::kBucketed, SyncMode::kOverlapped);
  for (const auto& layout : kSeveral) {
    const auto exact = train_compressed(layout, Compress::kNone, sync);
    CHECK(exact[0].losses.back() < .9 * exact[0].losses.front());  // it learns something
    for (const auto compress : {Compress::kBf16, Compress::kFp16}) {
      INFO(text_of(layout) << ", " << name_of(kSyncModeNames, sync) << ", "
                           << name_of(kCompressNames, compress));
      const auto found = train_compressed(layout, compress, sync);
      CHECK(found[0].losses[0] == exact[0].losses[0]);  // of the initial weights
      CHECK(found[0].losses != exact[0].losses);
      for (size_t step = 0; step < found[0].losses.size(); ++step) {
        CHECK(found[0].losses[step] == Approx(exact[0].losses[step]).epsilon(1e-3));
      }
      for (const auto& own : found) {
        CHECK(own.losses == found[0].losses);
        check_same_sums(own.evaluation, found[0].evaluation);
        CHECK(own.evaluation.rows == 64);
        for (const auto& params : own.params) {
          for (size_t i = 0; i < params.size(); ++i) CHECK(params[i].equal(found[0].params[0][i]));
        }
      }
    }
  }
}

// A loss a hundred million times as large: its gradients do not fit into fp16, but into bf16 and float. The
// learning rate makes up for it.
TEST_CASE("a gradient that does not fit into fp16 shows in the loss, and fits into bf16") {
  for (const auto compress : {Compress::kNone, Compress::kBf16, Compress::kFp16}) {
    TrainerOptions options;
    options.lr = {.lr = 1e-10};
    options.compress = compress;
    const auto bad = in_processes({1, 1}, options, [](int, const TrainerOptions& own) {
      const ModelFactory large = [] {
        auto model = two_layers()();
        model.loss_sum = [loss_sum = model.loss_sum](const Batch& rows) {
          auto outcome = loss_sum(rows);
          outcome.loss = outcome.loss * 1e8;
          return outcome;
        };
        return model;
      };
      const auto rows = source(std::make_shared<RowSource>(16));
      Trainer trainer(large, rows, rows, own);
      for (int step = 0; step < 3; ++step) trainer.step(first_rows(16));
      return trainer.take_sums().bad;
    });
    INFO(name_of(kCompressNames, compress));
    for (const auto& found : bad) {
      CHECK(found.has_value() == (compress == Compress::kFp16));
      if (found) CHECK(found->step == 1);  // the first one that uses the weights
    }
  }
}

TEST_CASE("options that compress nothing, or should not, are refused") {
  struct Case {
    const char* words;  // empty: they are accepted
    std::function<void(TrainerOptions&)> change;
    Layout layout = {1, 1};
  };
  const Case cases[] = {
      {"this process is alone", [](auto&) {}, {2}},
      {"", [](auto&) {}},
      {"Precision::kFp64", [](auto& options) { options.replica.precision = Precision::kFp64; }},
      {"invariant", [](auto& options) { options.replica.invariant = true; }},
      {"sync.hook", [](auto& options) { options.replica.sync.hook = bf16_hook(); }},
      {"NCCL", [](auto& options) { options.allreduce = Allreduce::kNccl; }}};
  for (const auto& [words, change, layout] : cases) {
    TrainerOptions options;
    options.compress = Compress::kBf16;
    change(options);
    for (const auto& text : trainer_refusals(layout, options, two_layers())) {
      CHECK_THAT(text, ContainsSubstring(words));
      CHECK(text.empty() == (*words == 0));
    }
  }
}
