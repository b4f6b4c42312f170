#include <lockstep/data/images/for_each_row.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <stop_token>
#include <vector>

#include <lockstep/data/ordered_tasks.h>

namespace lockstep {

void for_each_row(int64_t rows, int workers, const std::function<void(int64_t row)>& work) {
  std::atomic<int64_t> next = 0, failed = rows;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(workers));
  std::vector<int64_t> failed_rows(static_cast<size_t>(workers), rows);
  OrderedTasks tasks(workers);
  for (int i = 0; i < workers; ++i) {
    tasks.post([&, i](int, const std::stop_token& stop) {
      const auto own = static_cast<size_t>(i);
      for (int64_t row = next++; row < failed && !stop.stop_requested(); row = next++) {
        try {
          work(row);
        } catch (...) {
          errors[own] = std::current_exception();
          failed_rows[own] = row;
          failed = std::min<int64_t>(failed, row);
          return;
        }
      }
    });
  }
  for (int i = 0; i < workers; ++i) tasks.wait();
  const auto first = std::ranges::min_element(failed_rows) - failed_rows.begin();
  if (errors[static_cast<size_t>(first)]) std::rethrow_exception(errors[static_cast<size_t>(first)]);
}

}  // namespace lockstep
