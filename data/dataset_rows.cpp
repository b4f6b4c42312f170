#include <lockstep/data/dataset_rows.h>

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>

#include <lockstep/data/fitting.h>
#include <lockstep/data/ordered_tasks.h>
#include <lockstep/data/row_readers.h>
#include <lockstep/data/row_reads.h>
#include <lockstep/data/rows_ahead.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr auto kDeclareRows =
    "DatasetRowsOptions::spec declares the tensors of a row; -1: a size that differs";

// The spec of a tensor of a row.
TensorSpec spec_of(const torch::Tensor& tensor, const std::string& name, Role role) {
  return {.name = name, .dtype = tensor.scalar_type(), .row_shape = tensor.sizes().vec(), .role = role};
}

bool fits(const TensorSpec& found, const TensorSpec& spec) {
  const auto same_size = [](int64_t size, int64_t wanted) { return wanted == -1 || size == wanted; };
  return found.dtype == spec.dtype && std::ranges::equal(found.row_shape, spec.row_shape, same_size);
}

RowsName name_of_rows(const DatasetRowsOptions& options) {
  if (options.name.empty()) return {.evaluated = options.evaluated};
  return {.set = options.name, .first_epoch = 1, .evaluated = options.evaluated};
}

class DatasetSource : public BatchSource {
 public:
  DatasetSource(int64_t size, const detail::NewRowReader& new_reader, const DatasetRowsOptions& options,
                torch::Device device)
      : size_(size),
        device_(device),
        seed_(options.seed),
        name_(name_of_rows(options)),
        workers_(static_cast<size_t>(options.workers)),
        readers_(new_reader),
        spec_(options.spec.empty() ? spec_of_first_row() : options.spec),
        notice_(options.notice),
        rows_(options.most_ahead),
        tasks_(options.workers) {}

  int64_t size() const override { return size_; }
  BatchSpec spec() const override { return spec_; }
  bool can_be_captured() const override { return false; }
  std::string settings() const override { return fmt::format("rows drawn with seed {}", seed_); }

  void will_need(std::span<const int64_t> rows, int64_t epoch) const override {
    if (workers_ > 0) read_in_workers(rows_.tell(rows, epoch, size_));
  }

  void gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const override {
    const auto on_host = rows.to(torch::kCPU).contiguous();
    const std::span numbers(on_host.const_data_ptr<int64_t>(), static_cast<size_t>(on_host.numel()));
    PendingRows unread;
    const auto asked = rows_.take(numbers, epoch, unread);
    if (workers_ > 0 && unread.size() > 1) read_in_workers(unread);
    read(asked, [this](PendingRow& row) { return rows_.begin(row); });
    rows_.wait_for(asked);
    if (workers_ > 0 && notice_ && rows_.falls_behind()) {
      const auto readers =
          workers_ == 1 ? "1 reading thread does" : fmt::format("{} reading threads do", workers_);
      notice_(readers + " not keep up: half of the last batches waited for their rows");
    }
    write(asked, into);
  }

 private:
  BatchSpec spec_of_first_row() {
    if (size_ == 0) throw UsageError("a data set of 0 rows does not tell what a row is", kDeclareRows);
    std::vector<torch::Tensor> row;
    const auto reader = readers_.take();
    RowReads(seed_, name_).read(/*epoch=*/0, /*row=*/0, [&] { row = reader(0); });
    if (row.empty() || row.size() > 2) {
      throw UsageError(fmt::format("a row of {} tensors does not tell their names", row.size()),
                       kDeclareRows);
    }
    BatchSpec spec = {spec_of(row[0], "input", Role::kInput)};
    if (row.size() == 2) spec.push_back(spec_of(row[1], "target", Role::kTarget));
    return spec;
  }

  // Each worker takes the next row that nobody has begun to read. Where no thread can start, gather() reads
  // all of them.
  void read_in_workers(PendingRows rows) const {
    tasks_.forget_done();
    const auto shared = std::make_shared<const PendingRows>(std::move(rows));
    try {
      for (size_t i = 0; i < std::min(workers_, shared->size()); ++i) {
        tasks_.post([this, shared](int, const std::stop_token& stop) {
          read(*shared,
               [&](PendingRow& row) { return !stop.stop_requested() && rows_.begin_ahead(row, stop); });
        });
      }
    } catch (const MemoryError&) {
      if (notice_)
        std::call_once(no_threads_, [&] { notice_("no thread can be started to read rows ahead"); });
    }
  }

  // Reads those of the rows that begin(row) gives to this thread.
  template <class Begin>
  void read(const PendingRows& rows, const Begin& begin) const {
    if (!rows_.any_queued(rows)) return;
    RowReads reads(seed_, name_);
    auto reader = readers_.take();
    for (const auto& row : rows) {
      if (!begin(*row)) continue;
      try {
        reads.read(row->epoch, row->number, [&] { row->tensors = checked(reader(row->number)); });
      } catch (...) {
        row->error = std::current_exception();
      }
      rows_.end(*row);
    }
    readers_.give_back(std::move(reader));
  }

  // Returns the row's tensors on the host, without a graph; throws if they are not as the spec says.
  std::vector<torch::Tensor> checked(std::vector<torch::Tensor> row) const {
    if (row.size() != spec_.size()) {
      throw DataError(fmt::format("it has {} tensors, not {}", row.size(), spec_.size()), kDeclareRows);
    }
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = row[i].detach().to(torch::kCPU);
      const auto found = spec_of(row[i], spec_[i].name, spec_[i].role);
      if (fits(found, spec_[i])) continue;
      throw DataError(fmt::format("it has {}, not {}", to_string(found), to_string(spec_[i])), kDeclareRows);
    }
    return row;
  }

  void write(const PendingRows& rows, Batch& into) const {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < spec_.size(); ++i) {
      std::vector<torch::Tensor> tensors;
      for (const auto& row : rows) tensors.push_back(row->tensors[i]);
      auto sizes = row_sizes(rows, i);
      sizes.insert(sizes.begin(), static_cast<int64_t>(rows.size()));
      const auto options = torch::dtype(spec_[i].dtype);
      into[i] = fitting(into[i], sizes, options.device(device_));
      if (rows.empty()) continue;
      if (device_.is_cpu()) {
        at::stack_out(into[i], tensors);
      } else {
        auto on_host = torch::empty(sizes, options.pinned_memory(true));
        at::stack_out(on_host, tensors);
        into[i].copy_(on_host, /*non_blocking=*/true);
      }
    }
  }

  // Returns the sizes that tensor i has in each of the rows; without rows what the spec says, 0 for any.
  std::vector<int64_t> row_sizes(const PendingRows& rows, size_t i) const {
    if (rows.empty()) {
      auto sizes = spec_[i].row_shape;
      std::ranges::replace(sizes, -1, 0);
      return sizes;
    }
    const auto& first = *rows.front();
    for (const auto& row : rows) {
      if (row->tensors[i].sizes() == first.tensors[i].sizes()) continue;
      const auto text = [&](const PendingRow& of) {
        return to_string(spec_of(of.tensors[i], spec_[i].name, spec_[i].role));
      };
      throw DataError(fmt::format("rows {} and {} of the data set do not make a batch: {}, and {}",
                                  first.number, row->number, text(first), text(*row)),
                      "all rows of a batch have the same sizes: let a transform pad or cut them");
    }
    return first.tensors[i].sizes().vec();
  }

  const int64_t size_;
  const torch::Device device_;
  const uint64_t seed_;
  const RowsName name_;
  const size_t workers_;
  mutable RowReaders readers_;
  const BatchSpec spec_;
  const Notice notice_;
  mutable std::once_flag no_threads_;
  mutable RowsAhead rows_;
  mutable OrderedTasks tasks_;  // last: its threads use the others
};

}  // namespace

SourceFactory detail::dataset_sources(std::optional<size_t> size, NewRowReader new_reader,
                                      DatasetRowsOptions options) {
  if (options.workers < 0) {
    throw UsageError(fmt::format("workers is {}", options.workers),
                     "it is a number of threads; with 0 the replicas read their rows");
  }
  if (options.most_ahead < 0) {
    throw UsageError(fmt::format("most_ahead is {}", options.most_ahead), "0 is any number of rows");
  }
  RowReads::prepare();
  return [rows = checked_size(size), new_reader = std::move(new_reader),
          options = std::move(options)](torch::Device device) {
    return std::make_shared<DatasetSource>(rows, new_reader, options, device);
  };
}

}  // namespace lockstep
