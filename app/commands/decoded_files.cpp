#include <lockstep/app/commands/decoded_files.h>

#include <algorithm>
#include <atomic>
#include <stop_token>

#include <lockstep/data/images/decoded_rows.h>
#include <lockstep/data/ordered_tasks.h>
#include <lockstep/support/error.h>

namespace lockstep {

std::vector<DecodedFile> decode_files(std::span<const std::string> paths, const DecodeOptions& options,
                                      int workers) {
  std::vector<DecodedFile> decoded(paths.size());
  by_workers(workers, paths.size(), [&](size_t i) {
    try {
      decoded[i].image = decode_file(paths[i], options);
    } catch (const DataError& error) {
      decoded[i].fault = error.message();
    }
  });
  return decoded;
}

void by_workers(int workers, size_t count, const std::function<void(size_t i)>& of) {
  std::atomic<size_t> next = 0;
  const auto threads = static_cast<int>(std::clamp<size_t>(count, 1, static_cast<size_t>(workers)));
  OrderedTasks tasks(threads);
  for (int i = 0; i < threads; ++i) {
    tasks.post([&](int, const std::stop_token& stop) {
      for (size_t at = next++; at < count && !stop.stop_requested(); at = next++) of(at);
    });
  }
  for (int i = 0; i < threads; ++i) tasks.wait();
}

}  // namespace lockstep
