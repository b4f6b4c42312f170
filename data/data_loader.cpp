#include <lockstep/data/data_loader.h>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/ordered_tasks.h>
#include <lockstep/data/row_reads.h>
#include <lockstep/support/batches.h>
#include <lockstep/support/error.h>
#include <lockstep/support/shard_sizes.h>

namespace lockstep {
namespace {

DataLoaderOptions checked_options(DataLoaderOptions options) {
  const auto at_least_one = [](const char* name, int64_t value) {
    if (value >= 1) return;
    throw UsageError(fmt::format("{} is {}", name, value), "it must be at least 1");
  };
  at_least_one("batch_rows", options.batch_rows);
  at_least_one("world", options.world);
  at_least_one("workers", options.workers);
  at_least_one("ahead", options.ahead);
  if (options.rank < 0 || options.rank >= options.world) {
    throw UsageError(fmt::format("rank is {} in a world of {}", options.rank, options.world),
                     "ranks count from 0: endpoint.rank() and endpoint.world_size()");
  }
  shard_sizes(/*rows=*/1, options.world, options.split);  // throws for shares that are none
  return options;
}

void read_rows(const DataLoaderSteps::Step& step, const DataLoaderSteps::Read& read, uint64_t seed,
               int worker, const std::stop_token& stop) {
  RowReads reads(seed);
  for (const auto row : step.rows) {
    if (stop.stop_requested()) return;
    reads.read(step.epoch, row, [&] { read.row(worker, row); });
  }
  try {
    read.collate();
  } catch (...) {
    throw_from(fmt::format("the rows of step {} in epoch {} do not make a batch", step.number, step.epoch));
  }
}

}  // namespace

struct DataLoaderSteps::Epoch {
  int64_t number = 0;
  std::vector<int64_t> order;
  int64_t next = 0;    // the step that next() returns
  int64_t posted = 0;  // the first step whose rows nobody was asked to read
  std::function<Read(int64_t step)> reader;
  OrderedTasks tasks;
};

DataLoaderSteps::DataLoaderSteps(DataLoaderOptions options, std::optional<size_t> size)
    : options_(checked_options(options)), rows_(detail::checked_size(size)) {
  RowReads::prepare();
}

DataLoaderSteps::~DataLoaderSteps() = default;

int64_t DataLoaderSteps::steps() const { return batches_of(rows_, options_.batch_rows); }

DataLoaderSteps::Step DataLoaderSteps::step_at(int64_t epoch, int64_t number,
                                               const std::vector<int64_t>& order) const {
  const auto first = number * options_.batch_rows;
  Step step{.epoch = epoch, .number = number, .batch_rows = std::min(options_.batch_rows, rows_ - first)};
  const auto sizes = shard_sizes(step.batch_rows, options_.world, options_.split);
  const auto own = sizes.begin() + options_.rank;
  const auto begin = order.begin() + first + std::accumulate(sizes.begin(), own, int64_t{0});
  step.rows.assign(begin, begin + *own);
  return step;
}

void DataLoaderSteps::start(int64_t epoch, int64_t step, std::function<Read(int64_t step)> reader) {
  if (step < 0 || step > steps()) {
    throw UsageError(fmt::format("an epoch of {} steps cannot start at step {}", steps(), step),
                     "steps count from 0 in every epoch");
  }
  auto order = batch_order(options_.seed, epoch, rows_);
  epoch_.reset();  // its workers use the same copies of the data set
  epoch_.reset(new Epoch{.number = epoch,
                         .order = std::move(order),
                         .next = step,
                         .posted = step,
                         .reader = std::move(reader),
                         .tasks = OrderedTasks(options_.workers)});
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  const auto ahead = options_.ahead > kMost / options_.workers ? kMost : options_.ahead * options_.workers;
  for (int64_t i = 0; i < ahead && epoch_->posted < steps(); ++i) post();
}

void DataLoaderSteps::post() {
  auto step = step_at(epoch_->number, epoch_->posted, epoch_->order);
  if (!step.rows.empty()) {
    auto read = epoch_->reader(step.number);
    epoch_->tasks.post(
        [step = std::move(step), read = std::move(read), seed = options_.seed](
            int worker, const std::stop_token& stop) { read_rows(step, read, seed, worker, stop); });
  }
  ++epoch_->posted;
}

std::optional<DataLoaderSteps::Step> DataLoaderSteps::next() {
  if (!epoch_) throw UsageError("next() was called before start()", "call start(epoch) first");
  if (epoch_->next == steps()) return std::nullopt;
  auto step = step_at(epoch_->number, epoch_->next, epoch_->order);
  if (!step.rows.empty()) epoch_->tasks.wait();
  ++epoch_->next;  // a step that fails stays the next one, and fails again
  if (epoch_->posted < steps()) post();
  return step;
}

}  // namespace lockstep
