// How rows of a torch::data Dataset are read: with numbers of their own, and with errors that name them.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/InferenceMode.h>

#include <cstdint>
#include <functional>
#include <string>

#include <lockstep/support/thread_random.h>

namespace lockstep {

// The name that messages give to the rows of a data set.
struct RowsName {
  std::string set = "the data set";
  int64_t first_epoch = 0;  // the number that messages give to epoch 0
  bool evaluated = false;   // the rows are the same in each epoch: messages name none
};

// While one lives, torch's operations in this thread compute as in a new one, on one core, so that a row does
// not depend on the thread that reads it. Destroy it in the thread that constructed it.
class RowReads {
 public:
  explicit RowReads(uint64_t seed, RowsName name = {});
  ~RowReads();
  RowReads(const RowReads&) = delete;
  RowReads& operator=(const RowReads&) = delete;

  // Calls read_row(), in which CPU operations draw numbers of (seed, epoch, row): the generator's seed is the
  // first draw of SplitMix64(seed, {4, epoch, row}). An exception comes nested in a DataError that names the
  // row.
  void read(int64_t epoch, int64_t row, const std::function<void()>& read_row);

  // Prepares torch. Call it before several threads read rows.
  static void prepare();

 private:
  const uint64_t seed_;
  const RowsName name_;
  const int threads_;                         // of the calling thread's operations, before
  const c10::InferenceMode ordinary_{false};  // gradients on, too
  at::Generator generator_;
  const ThreadRandom random_;
};

// Throws the current exception nested in a DataError that says where it came from, with the hint of an Error.
[[noreturn]] void throw_from(const std::string& place);

}  // namespace lockstep
