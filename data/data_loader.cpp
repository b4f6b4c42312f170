#include <lockstep/data/data_loader.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <numeric>
#include <string>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/ordered_tasks.h>
#include <lockstep/support/error.h>
#include <lockstep/support/shard_sizes.h>
#include <lockstep/support/split_mix64.h>
#include <lockstep/support/thread_random.h>

// From <omp.h>, which clang-tidy has only where LLVM's OpenMP is installed.
extern "C" void omp_set_num_threads(int threads);

namespace lockstep {
namespace {

constexpr uint64_t kRowStream = 4;  // data/synthetic.cpp and parallel/replica_random.cpp have others

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

int64_t checked_size(std::optional<size_t> size) {
  if (size) return static_cast<int64_t>(*size);
  throw UsageError("the data set does not know its size", "let its size() return the number of rows");
}

// Throws the current exception nested in a DataError that says where it came from.
[[noreturn]] void throw_from(const std::string& place) {
  std::string what = "an exception of an unknown type";
  try {
    throw;
  } catch (const Error& error) {
    what = error.message();
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {  // has no text
  }
  std::throw_with_nested(DataError(fmt::format("{}: {}", place, what)));
}

void read_rows(const DataLoaderSteps::Step& step, const DataLoaderSteps::Read& read, uint64_t seed,
               int worker, const std::stop_token& stop) {
  at::get_num_threads();   // torch sets OpenMP's number at its first call in a thread
  omp_set_num_threads(1);  // of this thread alone, unlike at::set_num_threads()
  auto generator = at::detail::createCPUGenerator();
  const ThreadRandom random(generator);
  for (const auto row : step.rows) {
    if (stop.stop_requested()) return;
    SplitMix64 draws(seed, {kRowStream, static_cast<uint64_t>(step.epoch), static_cast<uint64_t>(row)});
    generator.set_current_seed(draws.next());
    try {
      read.row(worker, row);
    } catch (...) {
      throw_from(fmt::format("row {} of the data set cannot be read in epoch {}", row, step.epoch));
    }
  }
  try {
    read.collate();
  } catch (...) {
    throw_from(fmt::format("the rows of step {} in epoch {} do not make a batch", step.number, step.epoch));
  }
}

}  // namespace

void detail::require_one_row(int64_t rows) {
  if (rows != 1) throw DataError(fmt::format("the data set gives {} rows for one row number", rows));
}

struct DataLoaderSteps::Epoch {
  int64_t number = 0;
  std::vector<int64_t> order;
  int64_t next = 0;    // the step that next() returns
  int64_t posted = 0;  // the first step whose rows nobody was asked to read
  std::function<Read(int64_t step)> reader;
  OrderedTasks tasks;
};

DataLoaderSteps::DataLoaderSteps(DataLoaderOptions options, std::optional<size_t> size)
    : options_(checked_options(options)), rows_(checked_size(size)) {
  ThreadRandom::prepare();
}

DataLoaderSteps::~DataLoaderSteps() = default;

int64_t DataLoaderSteps::steps() const {
  return rows_ / options_.batch_rows + (rows_ % options_.batch_rows > 0 ? 1 : 0);
}

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
  auto step = step_at(epoch_->number, epoch_->posted++, epoch_->order);
  if (step.rows.empty()) return;
  auto read = epoch_->reader(step.number);
  epoch_->tasks.post(
      [step = std::move(step), read = std::move(read), seed = options_.seed](
          int worker, const std::stop_token& stop) { read_rows(step, read, seed, worker, stop); });
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
