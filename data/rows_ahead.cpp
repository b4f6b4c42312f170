#include <lockstep/data/rows_ahead.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr int kJudgedBatches = 32;
constexpr int64_t kKeptTells = 64;  // more than batches and replicas that are on their way

}  // namespace

PendingRows RowsAhead::tell(std::span<const int64_t> rows, int64_t epoch, int64_t size) {
  PendingRows added;
  const std::lock_guard lock(mutex_);
  if (epoch != newest_epoch_) {
    std::erase_if(pending_, [&](const auto& pending) {
      const bool old = pending.first.first != epoch && pending.first.first != newest_epoch_;
      if (old) forget(pending.second);
      return old;
    });
    newest_epoch_ = epoch;
  }
  ++tells_;
  for (const auto row : rows) {
    if (row < 0 || row >= size) continue;  // the step that asks for it is refused
    auto& pending = pending_[{epoch, row}];
    if (!pending) {
      pending = std::make_shared<PendingRow>(PendingRow{.epoch = epoch, .number = row});
      added.push_back(pending);
    }
    ++pending->requests;
    pending->told = tells_;
  }
  return added;
}

// Gives its room to others. Holds the mutex, as the next ones.
void RowsAhead::forget(const std::shared_ptr<PendingRow>& row) {
  row->asked = true;  // whoever waits to read it goes on
  if (row->is_ahead) --ahead_;
  row->is_ahead = false;
  room_.notify_all();
}

void RowsAhead::forget_told_before(int64_t told) {
  std::erase_if(pending_, [&](const auto& pending) {
    auto& row = *pending.second;
    if (row.told >= told) return false;
    if (!row.asked && row.state == PendingRow::State::kQueued) row.state = PendingRow::State::kDone;
    forget(pending.second);
    return true;
  });
}

void RowsAhead::count_batch(const PendingRows& told) {
  if (told.empty()) return;
  ++batches_;
  late_batches_ +=
      std::ranges::any_of(told, [](const auto& row) { return row->state != PendingRow::State::kDone; });
  if (batches_ < kJudgedBatches) return;
  behind_ = behind_ || 2 * late_batches_ >= batches_;
  batches_ = late_batches_ = 0;
}

PendingRows RowsAhead::take(std::span<const int64_t> numbers, int64_t epoch, PendingRows& unread) {
  PendingRows asked, told;
  const std::lock_guard lock(mutex_);
  for (const auto number : numbers) {
    const auto found = pending_.find({epoch, number});
    if (found == pending_.end()) {
      unread.push_back(
          std::make_shared<PendingRow>(PendingRow{.epoch = epoch, .number = number, .asked = true}));
      asked.push_back(unread.back());
      continue;
    }
    told.push_back(found->second);
    asked.push_back(found->second);
    if (--found->second->requests == 0) pending_.erase(found);
  }
  count_batch(told);
  int64_t newest = 0;
  for (const auto& row : told) {
    newest = std::max(newest, row->told);
    if (row->requests == 0) {
      forget(row);
    } else {  // it stays for another batch, and takes up its room
      row->asked = true;
      room_.notify_all();
    }
  }
  if (most_ > 0) forget_told_before(newest - kKeptTells);
  return asked;
}

bool RowsAhead::any_queued(const PendingRows& rows) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(rows, [](const auto& row) { return row->state == PendingRow::State::kQueued; });
}

bool RowsAhead::begin(PendingRow& row) {
  const std::lock_guard lock(mutex_);
  if (row.state != PendingRow::State::kQueued) return false;
  row.state = PendingRow::State::kBegun;
  room_.notify_all();  // who waits to read this row goes on to the next one
  return true;
}

bool RowsAhead::begin_ahead(PendingRow& row, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto go_on = [&] {
    return row.state != PendingRow::State::kQueued || row.asked || most_ == 0 || ahead_ < most_;
  };
  if (!room_.wait(lock, stop, go_on)) return false;
  if (row.state != PendingRow::State::kQueued) return false;
  row.state = PendingRow::State::kBegun;
  if (!row.asked) {
    row.is_ahead = true;
    ++ahead_;
  }
  return true;
}

void RowsAhead::end(PendingRow& row) {
  std::unique_lock lock(mutex_);
  row.state = PendingRow::State::kDone;
  lock.unlock();
  done_.notify_all();
}

void RowsAhead::wait_for(const PendingRows& rows) {
  std::unique_lock lock(mutex_);
  for (const auto& row : rows) {
    done_.wait(lock, [&] { return row->state == PendingRow::State::kDone; });
    if (row->error) std::rethrow_exception(row->error);
  }
}

bool RowsAhead::falls_behind() {
  const std::lock_guard lock(mutex_);
  if (!behind_ || said_) return false;
  said_ = true;
  return true;
}

}  // namespace lockstep
