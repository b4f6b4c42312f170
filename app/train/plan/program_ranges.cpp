// How many rows a program is given at once: check_program_rows() and check_evaluation_rows() of program.h.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <lockstep/app/train/plan/program.h>
#include <lockstep/app/train/plan/program_labels.h>
#include <lockstep/parallel/gradients/micro_shards.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/training/evaluation.h>
#include <lockstep/support/batches.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

// The numbers of rows that some replica is given at once, with what they are: "the last step of an epoch".
struct Given {
  std::set<int64_t> rows;
  std::string of;
};

// Its micro-batches are cut before its shards, which may be empty and are computed all the same.
bool shares_statistics(const TrainPlan& plan) {
  return plan.trainer.bn == BnPolicy::kSync && plan.has_batch_norm && plan.world_size() > 1;
}

// The parts of a batch of this many rows, as Trainer deals it.
std::set<int64_t> parts_of(const TrainPlan& plan, int64_t batch) {
  const auto& trainer = plan.trainer;
  const auto accumulate = static_cast<int>(trainer.accumulate);
  std::set<int64_t> sizes;
  const auto add = [&](const std::vector<int64_t>& parts) { sizes.insert(parts.begin(), parts.end()); };
  if (trainer.replica.invariant) {
    add(shard_sizes(batch, kMicroShards));
  } else if (shares_statistics(plan)) {
    for (const auto part : shard_sizes(batch, accumulate)) {
      if (part > 0) add(shard_sizes(part, plan.world_size(), trainer.split));
    }
    return sizes;
  } else {
    for (const auto shard : shard_sizes(batch, plan.world_size(), trainer.split)) {
      add(shard_sizes(shard, accumulate));
    }
  }
  sizes.erase(0);  // nothing runs without rows
  return sizes;
}

std::vector<Given> training_rows(const TrainPlan& plan) {
  const int64_t rows = plan.data.set.train.rows;
  std::vector<Given> all{{parts_of(plan, std::min(plan.batch_size, rows)), "a step"}};
  const int64_t last = rows_of_last_batch(rows, plan.batch_size);
  if (plan.steps_per_epoch > 1 && last != plan.batch_size) {
    all.push_back({parts_of(plan, last), "the last step of an epoch"});
  }
  return all;
}

Given evaluation_rows(int64_t rows) {
  const auto blocks = batches_of(rows, kEvaluationBlock);
  const auto sizes = shard_sizes(rows, static_cast<int>(std::max<int64_t>(blocks, 1)));
  return {{sizes.begin(), sizes.end()}, "an evaluation"};
}

std::string why_text(const Program::Rows& allowed) {
  return allowed.why.empty() ? "" : fmt::format(" ({})", allowed.why);
}

void check_range(const Program& program, const Given& given, const Program::Rows& allowed, const char* hint) {
  for (const auto rows : given.rows) {
    const bool fits = rows == 0 ? allowed.empty : rows >= allowed.least && rows <= allowed.most;
    if (fits) continue;
    throw UsageError(fmt::format("a replica would get {} at once in {}, but {} takes {}{}{}",
                                 counted(rows, "row"), given.of, in_quotes(program.path().native()),
                                 to_string(allowed), rows == 0 ? " but 0" : "", why_text(allowed)),
                     hint);
  }
}

}  // namespace

void check_evaluation_rows(const Program& program, int64_t rows) {
  check_range(program, evaluation_rows(rows), program.rows(/*training=*/false),
              "choose another --limit-test, or export the program for other numbers of rows");
}

void check_program_rows(const TrainPlan& plan) {
  if (!plan.program) return;
  check_batch(*plan.program, plan.data.set.spec, plan.loss->loss == ProgramLoss::kOwn);
  check_labels(*plan.program, *plan.loss, plan.data.set);
  const auto allowed = plan.program->rows(/*training=*/true, shares_statistics(plan));
  const bool any = allowed.least <= 1 && allowed.most >= plan.batch_size;
  if (plan.trainer.auto_split && plan.world_size() > 1 && !any) {
    throw UsageError(
        fmt::format("--split auto may give a replica any number of rows, but {} takes {}{} at once",
                    in_quotes(plan.program->path().native()), to_string(allowed), why_text(allowed)),
        "name the shares: --split 3:1");
  }
  for (const auto& given : training_rows(plan)) {
    check_range(*plan.program, given, allowed,
                "choose --batch-size, the number of replicas, --accumulate or --limit-train so that all "
                "shards fit, or export the program for other numbers of rows");
  }
  check_evaluation_rows(*plan.program, plan.data.set.test.rows);
}

std::string row_range_text(const Program::Rows& rows) {
  return fmt::format("{} at once{}{}", to_string(rows), rows.empty ? "" : ", but not 0", why_text(rows));
}

}  // namespace lockstep
