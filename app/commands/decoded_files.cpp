#include <lockstep/app/commands/decoded_files.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include <lockstep/data/images/decoded_rows.h>
#include <lockstep/data/images/for_each_row.h>
#include <lockstep/support/error.h>

namespace lockstep {

std::vector<DecodedFile> decode_files(
    std::span<const std::string> paths, const DecodeOptions& options, int workers,
    const std::function<void(const Pixels& image, const std::string& path)>& check) {
  std::vector<DecodedFile> decoded(paths.size());
  for_each_row(static_cast<int64_t>(paths.size()), workers, [&](int64_t row) {
    const auto i = static_cast<size_t>(row);
    Pixels image;
    try {
      image = decode_file(paths[i], options);
    } catch (const DataError& error) {
      decoded[i].fault = error.message();
      return;
    }
    check(image, paths[i]);
    decoded[i].image = std::move(image);
  });
  return decoded;
}

}  // namespace lockstep
